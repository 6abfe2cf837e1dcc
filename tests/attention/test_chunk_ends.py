"""The ends of earlier chunks and the own key: every form, pieces and steps against the literal loop."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import oracle
from attention.cases import allowed_forms, fresh_state, inputs
from attention.compare import assert_close
from oracle import chunk_ends, decay, exp, exp5, f, identity, l2, ln, normalised, sum_gv, sum_v, taylor_weight
from softmax_rnn.attention import nonpositive
from softmax_rnn.attention.attend import attend, extend
from softmax_rnn.attention.parts import ChunkEnds, ForgetGate, Length, taylor_score
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.state import FixedState
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

TAYLOR = taylor_weight(2, identity)


def gated(r: oracle.Row):
    return ln(r, r.out_gate * sum_gv(r, lambda r, j: exp5(r, j) * decay(r, j)) / r.n)


def with_ends(name: str, length: int) -> AttentionSpec:
    return replace(VARIANTS[name], structure=ChunkEnds(length))


SPECS = {
    "softmax": (with_ends("softmax", 3), normalised(exp, chunk_ends(3))),
    "gates": (with_ends("gated_softmax_decay", 4), f(gated, chunk_ends(4))),
    "taylor": (
        AttentionSpec(score=taylor_score(2), forget_gate=ForgetGate(), structure=ChunkEnds(3)),
        normalised(TAYLOR, chunk_ends(3)),
    ),
    "odd": (
        AttentionSpec(score=taylor_score(1, scale=0.1), structure=ChunkEnds(2)),
        normalised(lambda r, j: 1 + 0.1 * oracle.dot()(r, j), chunk_ends(2)),
    ),
    "l2": (with_ends("softmax_l2", 5), f(lambda r: l2(sum_v(r, exp)), chunk_ends(5))),
    "length": (
        AttentionSpec(score=taylor_score(2), normaliser=Length(), structure=ChunkEnds(2)),
        f(lambda r: sum_v(r, TAYLOR) / r.n, chunk_ends(2)),
    ),
    "map": (with_ends("linear_elu", 3), normalised(oracle.elu_dot, chunk_ends(3))),
}


@pytest.mark.parametrize("name", ["softmax", "taylor_2", "gated_softmax_decay"])
def test_chunks_of_one_are_attention(name):
    spec = with_ends(name, 1)
    tensors = inputs(spec)
    for form in allowed_forms(spec):
        assert_close(attend(spec, **tensors, form=form), attend(VARIANTS[name], **tensors, form="parallel"))


def test_the_state_keeps_the_ends_alone():
    spec = with_ends("softmax", 4)
    tensors = inputs(spec, time=30)
    state = fresh_state(spec, tensors)
    for t in range(30):
        state = extend(spec, **{name: x[:, :, t : t + 1] for name, x in tensors.items()}, state=state)[1]
        assert state.time == (t + 1) // 4
    assert torch.equal(state.keys, tensors["k"][:, :, 3::4])
    summed = with_ends("taylor_2", 4)
    assert isinstance(extend(summed, **tensors, state=fresh_state(summed, tensors))[1], FixedState)


def test_rows_with_negative_weights_are_counted_as_without_chunks():
    plain = AttentionSpec(score=taylor_score(1))
    tensors = inputs(plain)
    said = []
    for spec in (plain, replace(plain, structure=ChunkEnds(1))):
        with nonpositive.counted() as count:
            attend(spec, **tensors, form="parallel")
        said.append((count.row_sums, count.negative_rows))
    assert said[0] == said[1] and said[0][1] > 0


def test_wrong_ones_are_refused():
    with pytest.raises(InputError, match="length: expected 1 or more, got 0"):
        ChunkEnds(0)
    for name, message in {"roformer_linear": "feature_sum", "deltanet": "all keys", "gla": "per channel"}.items():
        with pytest.raises(InputError, match=message):
            with_ends(name, 2)
    with pytest.raises(InputError, match="the query's own key is added after the ends of chunks"):
        attend(with_ends("softmax", 2), **inputs(VARIANTS["softmax"]), form="fused")
