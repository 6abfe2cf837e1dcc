import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from softmax_rnn.errors import InputError
from softmax_rnn.model import SpecCache
from softmax_rnn.model import stream as stream_module
from softmax_rnn.model.sampling import Sampling
from softmax_rnn.model.stream import cache_bytes, generate_command, stream

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
def test_greedy_streams_are_generate(variant):
    model, ids = tiny_model(variant), tokens(1, 6)
    steps = list(stream(model, ids[0], max_new_tokens=7))
    expected = model.generate(ids, max_new_tokens=7, do_sample=False, pad_token_id=0)[0, 6:]
    assert [step.token for step in steps] == expected.tolist()
    assert [step.count for step in steps] == list(range(1, 8))
    assert [step.context for step in steps] == list(range(6, 13))
    last = steps[-1]
    assert last.prompt_tokens == 6 and last.prefill_seconds > 0
    assert last.tokens_per_second == pytest.approx(6 / last.decode_seconds)
    grows = len({step.state_bytes for step in steps}) > 1
    assert grows == (variant == "softmax")


def test_a_stream_goes_on_from_its_cache():
    model, ids = tiny_model("taylor_2"), tokens(1, 6)[0].tolist()
    whole = [step.token for step in stream(model, ids, max_new_tokens=8)]
    cache = SpecCache(model.config.specs)
    first = [step.token for step in stream(model, ids, max_new_tokens=3, cache=cache)]
    rest = [step.token for step in stream(model, first[-1:], max_new_tokens=5, cache=cache)]
    assert first + rest == whole


def test_it_stops_at_an_end_token():
    model, ids = tiny_model(), tokens(1, 6)[0].tolist()
    said = [step.token for step in stream(model, ids, max_new_tokens=8)]
    end = said[3]
    stopped = [step.token for step in stream(model, ids, max_new_tokens=8, stop_ids=[end])]
    assert stopped == said[: said.index(end) + 1]
    model.generation_config.eos_token_id = end
    assert [step.token for step in stream(model, ids, max_new_tokens=8)] == stopped


def test_text_comes_in_whole_characters(tokenizer, monkeypatch):
    wanted = list(tokenizer("aé€b")["input_ids"])
    left = iter(wanted)
    monkeypatch.setattr(stream_module, "Chooser", lambda *_: lambda ids, logits: next(left))
    steps = list(stream(tiny_model(vocab_size=256), "x", tokenizer=tokenizer, max_new_tokens=len(wanted)))
    assert [step.text for step in steps] == ["a", "", "é", "", "", "€", "b"]


def test_sampling_is_seeded_and_bounded():
    model, ids = tiny_model(), tokens(1, 4)[0].tolist()

    def said(**options):
        return [s.token for s in stream(model, ids, max_new_tokens=12, sampling=Sampling(**options))]

    assert said(temperature=1.5, seed=1) == said(temperature=1.5, seed=1) != said(temperature=1.5, seed=2)
    assert said(temperature=1.5, seed=1, top_k=1) == said()
    assert said(temperature=1.5, seed=1, top_p=1e-6) == said()
    assert len(said(temperature=1.0)) == 12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature: expected 0"),
        ({"top_k": 0}, "top_k: expected 1 or more"),
        ({"top_p": 0.0}, "top_p: expected"),
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
        ([1] * 60, {"max_new_tokens": 6}, "60 of the prompt and 6 new tokens need 65 positions.*knows 64"),
    ]:
        with pytest.raises(InputError, match=message):
            stream(model, prompt, **options)
    assert len(list(stream(model, [1] * 60, max_new_tokens=5))) == 5


def test_models_of_transformers_stream_as_well():
    torch.manual_seed(0)
    known = LlamaConfig().to_dict()
    llama = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in SMALL.items() if k in known})).eval()
    steps = list(stream(llama, [1, 2, 3], max_new_tokens=4))
    assert steps[-1].state_bytes == 2 * 2 * 2 * 8 * 6 * 4  # layers, keys and values, heads, dim, positions, bytes
    with torch.no_grad():
        assert cache_bytes(llama(torch.tensor([[1]]), use_cache=True).past_key_values) == 2 * 2 * 2 * 8 * 4


def test_the_command_loads_streams_and_keeps_the_state(tokenizer, tmp_path):
    tiny_model("taylor_2", vocab_size=256).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    whole = "".join(step.text for step in generate_command(tmp_path / "model", "Hello", max_new_tokens=6))
    state = tmp_path / "state"
    list(generate_command(tmp_path / "model", "Hel", max_new_tokens=1, state_out=state))
    resumed = generate_command(tmp_path / "model", "lo", max_new_tokens=6, state_in=state)
    assert "".join(step.text for step in resumed) == whole
    tiny_model("softmax", vocab_size=256).save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    with pytest.raises(InputError, match="belongs to another spec"):
        list(generate_command(tmp_path / "other", "lo", state_in=state))


def test_a_converted_foreign_model_keeps_its_state_too(tokenizer, tmp_path):
    torch.manual_seed(0)
    known = Qwen3Config().to_dict()
    small = {name: value for name, value in SMALL.items() if name in known} | {"vocab_size": 256}
    Qwen3ForCausalLM(Qwen3Config(**small)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    state, model = tmp_path / "state", tmp_path / "model"
    whole = "".join(step.text for step in generate_command(model, "Hello", variant="taylor_2", max_new_tokens=6))
    list(generate_command(model, "Hel", variant="taylor_2", max_new_tokens=1, state_out=state))
    resumed = generate_command(model, "lo", variant="taylor_2", max_new_tokens=6, state_in=state)
    assert "".join(step.text for step in resumed) == whole
