"""Text with its speed and state: what `generate` says, in whole words, continued from a file, refused where it lies."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from softmax_rnn.errors import InputError, RunError
from softmax_rnn.model import SpecCache
from softmax_rnn.model.cache import cache_bytes
from softmax_rnn.model.generating import Sampling, generate_command, generate_text

from .tiny import SMALL, tiny_model, tokens


@pytest.fixture
def tokenizer():
    """Bytes as tokens: characters outside ASCII take several."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bare = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=bare)


@pytest.mark.parametrize("variant", ["softmax", "taylor_2", "two_mamba", "linear_mamba"])
def test_likeliest_tokens_are_those_of_generate(variant):
    model, ids = tiny_model(variant), tokens(1, 6)
    result = generate_text(model, ids[0], max_new_tokens=7)
    expected = model.generate(ids, max_new_tokens=7, do_sample=False, pad_token_id=0)[0, 6:]
    assert list(result.tokens) == expected.tolist()
    assert result.context == 12 and result.prompt_tokens == 6 and result.prefill_seconds > 0
    assert result.tokens_per_second == pytest.approx(6 / result.decode_seconds)
    longer = generate_text(model, ids[0], max_new_tokens=20)
    assert (longer.state_bytes > result.state_bytes) == (variant == "softmax")


def test_it_goes_on_from_a_cache():
    model, ids = tiny_model("taylor_2"), tokens(1, 6)[0].tolist()
    whole = generate_text(model, ids, max_new_tokens=8).tokens
    cache = SpecCache(model.config.specs)
    first = generate_text(model, ids, max_new_tokens=3, cache=cache).tokens
    rest = generate_text(model, first[-1:], max_new_tokens=5, cache=cache).tokens
    assert first + rest == whole


def test_it_stops_at_an_end_token():
    model, ids = tiny_model(), tokens(1, 6)[0].tolist()
    said = generate_text(model, ids, max_new_tokens=8).tokens
    model.generation_config.eos_token_id = said[3]
    assert generate_text(model, ids, max_new_tokens=8).tokens == said[: said.index(said[3]) + 1]


def test_words_come_whole_and_add_up(tokenizer):
    model, heard = tiny_model(vocab_size=256), []
    result = generate_text(model, "aé", tokenizer=tokenizer, max_new_tokens=30, on_text=heard.append)
    assert result.prompt_tokens == 3 and len(heard) > 1
    assert "".join(heard) == result.text == tokenizer.decode(result.tokens, skip_special_tokens=True)


def test_sampling_is_seeded_and_bounded():
    model, ids = tiny_model(), tokens(1, 4)[0].tolist()

    def said(**options):
        return generate_text(model, ids, max_new_tokens=12, sampling=Sampling(**options)).tokens

    assert said(temperature=1.5, seed=1) == said(temperature=1.5, seed=1) != said(temperature=1.5, seed=2)
    assert said(temperature=1.5, seed=1, top_k=1) == said()
    assert said(temperature=1.5, seed=1, top_p=1e-6) == said()
    assert len(said(temperature=1.0)) == 12
    model.generation_config.top_k = 1  # what the checkpoint says is not what was asked for
    assert said(temperature=1.5, seed=1) != said()
    before = torch.get_rng_state()
    said(temperature=1.5, seed=1)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, r"temperature: expected 0 \(the likeliest token\), or 0.0001 to 10000, got -1"),
        ({"temperature": 1e-320}, "temperature: expected 0 .*, got 9.99989e-321"),
        ({"temperature": float("nan")}, "temperature: expected 0 .*, got nan"),
        ({"temperature": 1.0, "top_k": 0}, "top_k: expected 1 or more"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p: expected"),
        ({"top_k": 5}, "top_k: has no effect at temperature 0"),
        ({"top_p": 0.5}, "top_p: has no effect at temperature 0"),
        ({"seed": 2**70}, "seed: expected a whole number of 64 bits"),
    ],
)
def test_sampling_that_cannot_be(options, message):
    with pytest.raises(InputError, match=message):
        Sampling(**options)


def test_arguments_that_do_not_fit():
    model = tiny_model()
    for prompt, options, message in [
        ("text", {}, "text needs a tokenizer"),
        ([], {}, "at least one token"),
        ([1], {"max_new_tokens": 0}, "max_new_tokens: expected 1 or more"),
        ([1] * 60, {"max_new_tokens": 6}, "60 of the prompt and 6 new tokens need 65 positions.*has 64"),
    ]:
        with pytest.raises(InputError, match=message):
            generate_text(model, prompt, **options)
    assert len(generate_text(model, [1] * 60, max_new_tokens=5).tokens) == 5


def test_weights_that_are_not_numbers_are_not_text():
    model = tiny_model()
    with torch.no_grad():
        model.lm_head.weight[3] = float("nan")
    with pytest.raises(RunError, match="largest logit is nan"):
        generate_text(model, [1, 2], max_new_tokens=2)


def test_models_of_transformers_as_well():
    torch.manual_seed(0)
    known = LlamaConfig().to_dict()
    llama = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in SMALL.items() if k in known})).eval()
    result = generate_text(llama, [1, 2, 3], max_new_tokens=4)
    assert result.state_bytes == 2 * 2 * 2 * 8 * 6 * 4  # layers, keys and values, heads, dim, positions, bytes
    with torch.no_grad():
        assert cache_bytes(llama(torch.tensor([[1]]), use_cache=True).past_key_values) == 2 * 2 * 2 * 8 * 4


def test_the_command_keeps_the_state(tokenizer, tmp_path):
    tiny_model("taylor_2", vocab_size=256).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    whole = generate_command(tmp_path / "model", "Hello", max_new_tokens=6).text
    state = tmp_path / "state"
    for _ in range(2):  # our own file may be replaced
        generate_command(tmp_path / "model", "Hel", max_new_tokens=1, state_out=state)
    assert generate_command(tmp_path / "model", "lo", max_new_tokens=6, state_in=state).text == whole
    tiny_model("softmax", vocab_size=256).save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    with pytest.raises(InputError, match="belongs to another spec"):
        generate_command(tmp_path / "other", "lo", state_in=state)


@pytest.mark.parametrize("name", ["notes.txt", "model/model.safetensors"])
def test_a_state_never_replaces_what_is_not_one(name, tmp_path):
    tiny_model().save_pretrained(tmp_path / "model")
    (tmp_path / "notes.txt").write_text("mine")
    before = (tmp_path / name).read_bytes()
    with pytest.raises(InputError, match=r"state_out: .* exists and is not a saved state"):
        generate_command(tmp_path / "model", "Hello", state_out=tmp_path / name)
    assert (tmp_path / name).read_bytes() == before


def test_a_converted_foreign_model_keeps_its_state_too(tokenizer, tmp_path):
    torch.manual_seed(0)
    known = Qwen3Config().to_dict()
    small = {name: value for name, value in SMALL.items() if name in known} | {"vocab_size": 256}
    Qwen3ForCausalLM(Qwen3Config(**small)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    state, model = tmp_path / "state", tmp_path / "model"
    whole = generate_command(model, "Hello", variant="taylor_2", max_new_tokens=6).text
    generate_command(model, "Hel", variant="taylor_2", max_new_tokens=1, state_out=state)
    assert generate_command(model, "lo", variant="taylor_2", max_new_tokens=6, state_in=state).text == whole
