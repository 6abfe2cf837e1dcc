"""The gated running sums of RAT against a loop, in pieces, packed and padded; models with them decode exactly."""

import pytest
import torch

from softmax_rnn.errors import InputError
from softmax_rnn.model import SpecCache
from softmax_rnn.model.convert import convert
from softmax_rnn.model.scan import ChunkScan

from .tiny import left_padded, tiny_config, tiny_model, tokens


def scan_of(length: int) -> ChunkScan:
    torch.manual_seed(length)
    return ChunkScan(hidden_size=8, channels=6, length=length)


def drawn(batch: int = 2, time: int = 11):
    torch.manual_seed(time)
    return torch.randn(batch, time, 8), torch.randn(batch, time, 6), torch.randn(batch, time, 6)


def literally(scan: ChunkScan, hidden, x):
    gate, out = torch.sigmoid(scan.gate(hidden)), []
    for t in range(x.shape[1]):
        before = torch.zeros_like(x[:, 0]) if t % scan.length == 0 else out[-1]
        out.append(gate[:, t] * before + (1 - gate[:, t]) * x[:, t])
    return torch.stack(out, 1)


@pytest.mark.parametrize("length", [1, 4, 16])
def test_it_is_the_recurrence(length):
    scan, (hidden, k, v) = scan_of(length), drawn()
    new_k, new_v, tail = scan(hidden, k, v)
    torch.testing.assert_close(new_k, literally(scan, hidden, k))
    torch.testing.assert_close(new_v, literally(scan, hidden, v))
    torch.testing.assert_close(tail, torch.cat([new_k, new_v], -1)[:, -1])


@pytest.mark.parametrize("cut", [1, 4, 7])
def test_pieces_continue_from_the_tail(cut):
    scan, given = scan_of(4), drawn()
    *first, tail = scan(*(x[:, :cut] for x in given))
    *rest, _ = scan(*(x[:, cut:] for x in given), tail=tail, lengths=torch.tensor([cut, cut]))
    for a, b, whole in zip(first, rest, scan(*given), strict=False):
        torch.testing.assert_close(torch.cat([a, b], 1), whole)


def test_documents_begin_anew_and_padding_is_nothing():
    scan, given = scan_of(3), drawn(1, 7)
    packed = scan(*given, segment_ids=torch.tensor([[0, 0, 0, 0, 1, 1, 1]]))[0]
    alone = torch.cat([scan(*(x[:, s] for x in given))[0] for s in (slice(0, 4), slice(4, 7))], 1)
    torch.testing.assert_close(packed, alone)
    places = [1, 2, 5, 6, 7, 9, 10]
    mask = torch.zeros(1, 12, dtype=torch.bool)
    mask[:, places] = True
    longer = [torch.full((1, 12, x.shape[-1]), 7.0).index_copy(1, torch.tensor(places), x) for x in given]
    new_k, _, tail = scan(*longer, key_mask=mask)
    torch.testing.assert_close(new_k[:, places], scan(*given)[0])
    torch.testing.assert_close(tail, scan(*given)[2])


def test_gates_start_with_memories_of_all_lengths():
    remembered = torch.sigmoid(ChunkScan(8, 4000, 16).gate.bias.detach())
    assert float(remembered.min()) >= 0.5 and 0.93 < float(remembered.max()) <= 15 / 16


def read(model, ids, mask=None, cache=None):
    with torch.no_grad():
        return model(ids, attention_mask=mask, past_key_values=cache, use_cache=True)


@pytest.mark.parametrize("variant", ["rat_3", "rat_1", "log_linear_mamba2", "log_linear_softmax"])
def test_models_decode_as_they_read(variant, tmp_path):
    model = tiny_model(variant)
    ids, mask = left_padded(tokens(2, 12), 4)
    whole = read(model, ids, mask).logits
    cache = read(model, ids[:, :7], mask[:, :7]).past_key_values
    cache = SpecCache.load(cache.save(tmp_path / "state"), model.config.specs)
    cache.select(torch.tensor([1, 0]))
    for t in range(7, 12):
        logits = read(model, ids[:, t : t + 1].flip(0), cache=cache).logits.flip(0)
        torch.testing.assert_close(logits[:, 0], whole[:, t], atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("variant", ["rat_3", "log_linear_taylor_2"])
def test_tokens_cannot_be_taken_back(variant):
    cache = read(tiny_model(variant), tokens(1, 6)).past_key_values
    with pytest.raises(InputError, match="crop: "):
        cache.crop(-1)


def test_levels_on_keys_can_be_cut():
    model, ids = tiny_model("log_linear_softmax"), tokens(1, 9)
    cache = read(model, ids).past_key_values
    cache.crop(-3)
    again = read(model, ids[:, 6:], cache=cache).logits
    torch.testing.assert_close(again, read(model, ids).logits[:, 6:], atol=2e-5, rtol=2e-5)


def test_packed_documents_are_documents_alone():
    for variant in ("rat_3", "log_linear_linear"):
        model, ids = tiny_model(variant), tokens(1, 11)
        with torch.no_grad():
            packed = model(ids, segment_ids=torch.tensor([[0] * 5 + [1] * 6])).logits
            alone = torch.cat([model(ids[:, :5]).logits, model(ids[:, 5:]).logits], 1)
        torch.testing.assert_close(packed, alone, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("variant", ["log_linear_softmax", "rat_1"])
def test_a_conversion_begins_where_the_model_was(variant):
    before, ids = read(tiny_model("softmax"), tokens()).logits, tokens()
    converted = convert(tiny_model("softmax"), variant)
    torch.testing.assert_close(read(converted, ids).logits, before, atol=2e-5, rtol=2e-5)


def test_positions_count_chunks():
    model, ids = tiny_model("rat_4", chunk_scan=False), tokens(1, 8)
    with torch.no_grad():
        shifted = model(ids, position_ids=torch.arange(8)[None] + 3).logits
        assert not torch.allclose(model(ids).logits, shifted, atol=1e-4)  # 3 … 10: other chunks
        same = model(ids, position_ids=torch.tensor([[0, 0, 3, 3, 4, 4, 7, 7]])).logits
        torch.testing.assert_close(model(ids).logits, same)


def test_wrong_blocks_are_refused():
    with pytest.raises(InputError, match="chunk_scan: no layer sees the ends of chunks"):
        tiny_config("softmax", chunk_scan=True)
    with pytest.raises(InputError, match="as many channels"):
        tiny_config("rat_4", value_expand=2)
