import pytest
import torch
from safetensors.torch import save_file

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.state import FixedState, GrowingState
from softmax_rnn.errors import InputError
from softmax_rnn.model import SpecCache

from .tiny import left_padded, tiny_model, tokens

KINDS = [
    "softmax",
    "gated_softmax_cumgate",
    "forgetting_transformer",
    "taylor_2",
    "two_mamba",
    "linear_mamba",
    "log_linear_mamba2",
    "rat_3",
    "streaming_llm_2",
    "near_far_2",
    "kept_keys_1",
]


def read(model, ids, mask=None, cache=None):
    with torch.no_grad():
        return model(ids, attention_mask=mask, past_key_values=cache, use_cache=True)


@pytest.mark.parametrize("variant", KINDS)
def test_saved_loaded_and_resumed(variant, tmp_path):
    model = tiny_model(variant)
    ids, mask = left_padded(tokens(2, 8), 3)
    cache = read(model, ids, mask).past_key_values
    path = cache.save(tmp_path / "deep" / "context.safetensors")
    again = SpecCache.load(path, model.config.specs)
    assert [p.name for p in path.parent.iterdir()] == ["context.safetensors"]
    assert again.get_seq_length() == 8 and again.lengths.tolist() == [5, 8]
    assert again.state_bytes() == cache.state_bytes()
    for i in range(4):
        ours, theirs = (read(model, tokens(2, 1, seed=i), cache=c).logits for c in (again, cache))
        assert torch.equal(ours, theirs)


def test_one_document_read_once_serves_many_questions(tmp_path):
    model, document = tiny_model("taylor_2"), tokens(1, 20)
    path = read(model, document).past_key_values.save(tmp_path / "document")
    for seed in (3, 4):
        question = tokens(1, 3, seed=seed)
        resumed = read(model, question, cache=SpecCache.load(path)).logits
        whole = read(model, torch.cat([document, question], 1)).logits[:, -3:]
        torch.testing.assert_close(resumed, whole, atol=1e-4, rtol=1e-3)


def test_files_that_do_not_fit(tmp_path):
    path = read(tiny_model("taylor_2"), tokens()).past_key_values.save(tmp_path / "state")
    with pytest.raises(InputError, match="layer 0 belongs to another spec than the model's; they differ in: score"):
        SpecCache.load(path, tiny_model("softmax").config.specs)
    with pytest.raises(InputError, match="one of them is a Mamba-2 mixer"):
        SpecCache.load(path, tiny_model("linear_mamba").config.specs)
    with pytest.raises(InputError, match="a state of 2 layers, the model has 3"):
        SpecCache.load(path, tiny_model("taylor_2", num_hidden_layers=3).config.specs)
    with pytest.raises(InputError, match="no file"):
        SpecCache.load(tmp_path / "none")
    (tmp_path / "text").write_text("no tensors at all, only text")
    with pytest.raises(InputError, match="not a safetensors file"):
        SpecCache.load(tmp_path / "text")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    (tmp_path / "flipped").write_bytes(content)
    with pytest.raises(InputError, match=r"flipped is damaged \(its content does not match its hash\)"):
        SpecCache.load(tmp_path / "flipped")
    save_file({"x": torch.ones(1)}, tmp_path / "other")
    with pytest.raises(InputError, match="does not hold a state"):
        SpecCache.load(tmp_path / "other")


def test_a_state_of_another_geometry_is_refused(tmp_path):
    path = read(tiny_model("taylor_2"), tokens()).past_key_values.save(tmp_path / "state")
    other = tiny_model("taylor_2", num_attention_heads=8)
    with pytest.raises(InputError, match=r"state: its .* has shape"):
        read(other, tokens(2, 1), cache=SpecCache.load(path, other.config.specs))


@pytest.mark.parametrize("variant", KINDS)
def test_rows_of_the_batch(variant):
    model, ids = tiny_model(variant), tokens(3, 6)
    following = tokens(1, 1, seed=9)
    wanted = [read(model, following, cache=read(model, ids[i : i + 1]).past_key_values).logits for i in range(3)]

    def logits_after(change, rows):
        cache = read(model, ids).past_key_values
        change(cache)
        assert cache.batch_size == len(rows)
        result = read(model, following.expand(len(rows), 1), cache=cache).logits
        torch.testing.assert_close(result, torch.cat([wanted[i] for i in rows]), atol=1e-4, rtol=1e-3)

    logits_after(lambda c: c.reorder_cache(torch.tensor([2, 2, 0])), [2, 2, 0])
    logits_after(lambda c: c.batch_repeat_interleave(2), [0, 0, 1, 1, 2, 2])
    logits_after(lambda c: c.batch_select_indices(torch.tensor([1])), [1])
    logits_after(lambda c: c.batch_select_indices(torch.tensor([False, True, True])), [1, 2])


def test_the_kind_of_state_follows_from_the_spec():
    assert isinstance(read(tiny_model("softmax"), tokens()).past_key_values.layers[0].state, GrowingState)
    assert isinstance(read(tiny_model("linear_elu"), tokens()).past_key_values.layers[0].state, FixedState)


@pytest.mark.parametrize("variant", ["softmax", "forgetting_transformer", "streaming_llm_2", "log_linear_softmax"])
def test_a_growing_state_can_be_cut(variant):
    model = tiny_model(variant)
    ids, mask = left_padded(tokens(2, 8), 3)
    cache = read(model, ids, mask).past_key_values
    cache.crop(-2)
    assert cache.get_seq_length() == 6 and cache.lengths.tolist() == [3, 6]
    again = read(model, ids[:, 6:], mask, cache).logits
    torch.testing.assert_close(again, read(model, ids, mask).logits[:, 6:], atol=1e-5, rtol=1e-4)
    with pytest.raises(InputError, match="minus the number"):
        cache.crop(3)


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("taylor_2", "sums over all positions"),
        ("linear_mamba", "Mamba-2 state"),
        ("gated_softmax_plusplus", "running values"),
        ("gated_softmax_cumgate", "running values"),
        ("near_far_2", "keys that left the window are gone"),
        ("kept_keys_1", "which keys are kept depends on all positions"),
        ("log_linear_taylor_2", "sums over all positions"),
        ("rat_3", "running values"),
    ],
)
def test_other_states_cannot(variant, message):
    cache = read(tiny_model(variant), tokens()).past_key_values
    with pytest.raises(InputError, match=message):
        cache.crop(-1)


def test_reset_and_emptiness():
    model, ids = tiny_model("linear_mamba"), tokens()
    for cache in (read(model, ids).past_key_values, SpecCache(model.config.specs)):
        cache.reset()
        assert (cache.get_seq_length(), cache.batch_size, cache.get_mask_sizes(3, 0)) == (0, -1, (3, 0))
        torch.testing.assert_close(read(model, ids, cache=cache).logits, read(model, ids).logits)
    with pytest.raises(InputError, match="specs: expected"):
        SpecCache([])


def test_attention_that_is_not_ours_is_refused():
    x = torch.ones(1, 1, 1, 1)
    with pytest.raises(InputError, match="convert the model first"):
        SpecCache([AttentionSpec()]).update(x, x, 0)
    with pytest.raises(InputError, match="belongs to a Mamba-2 mixer"):
        SpecCache([None]).extend(0, x, x, x)
