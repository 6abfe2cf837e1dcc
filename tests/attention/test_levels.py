"""Levels on any score: every form, pieces and steps against the literal loop, and the limit of equal weights."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import oracle
from attention.cases import MASKS, T, allowed_forms, attention, fresh_state, inputs
from attention.compare import assert_close, assert_same, run
from oracle import decay, exp5, f, identity, l2, levels, ln, normalised, sum_gv, sum_v, taylor_weight
from softmax_rnn.attention.algebra import state_numbers_after
from softmax_rnn.attention.attend import attend, extend
from softmax_rnn.attention.parts import ChunkEnds, ForgetGate, Levels, Window, power_score, taylor_score
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.state import State
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

TAYLOR = taylor_weight(2, identity)


def gated(r: oracle.Row):
    return ln(r, r.out_gate * sum_gv(r, lambda r, j: levels(exp5)(r, j) * decay(r, j)) / r.n)


SPECS = {
    "few": (AttentionSpec(score=taylor_score(2), structure=Levels(3)), normalised(levels(TAYLOR))),
    "decay": (
        AttentionSpec(score=taylor_score(2), forget_gate=ForgetGate(), structure=Levels(4)),
        normalised(levels(TAYLOR)),
    ),
    "wide": (
        AttentionSpec(score=power_score(2), normaliser=None, structure=Levels(2)),
        f(lambda r: sum_v(r, levels(oracle.power_weight(2, identity)))),
    ),
    "gates": (replace(VARIANTS["gated_softmax_decay"], structure=Levels()), f(gated)),
    "l2": (replace(VARIANTS["softmax_l2"], structure=Levels(5)), f(lambda r: l2(sum_v(r, levels(oracle.exp))))),
}


def test_the_platforms_kernel_in_blocks_of_their_real_size():
    spec = VARIANTS["log_linear_softmax"]
    tensors = inputs(spec, time=600)
    truth = run(attention(spec, form="parallel"), tensors)
    assert_same(run(attention(spec, form="fused"), tensors), truth, torch.float64)


@pytest.mark.parametrize("form", ["blockwise", "chunked"])
def test_blocks_and_chunks_of_their_real_size(form):
    spec = AttentionSpec(score=taylor_score(2), forget_gate=ForgetGate(), structure=Levels())
    tensors = inputs(spec, time=700)
    assert_same(run(attention(spec, form=form), tensors), run(attention(spec, form="parallel"), tensors), torch.float64)


@pytest.mark.parametrize("name", ["taylor_2", "softmax", "mamba2_ssd"])
def test_equal_weights_give_the_row_without_levels(name):
    plain = VARIANTS[name]
    spec = replace(plain, structure=Levels())
    tensors = inputs(plain)
    levelled = inputs(spec) | tensors
    levelled["level_weights"] = torch.full_like(levelled["level_weights"], math.log(math.e - 1))
    levelled["level_scales"] = torch.ones_like(levelled["level_scales"])
    for form in allowed_forms(spec):
        assert_close(attend(spec, **levelled, form=form), attend(plain, **tensors, form="parallel"))


def test_the_state_grows_with_the_logarithm():
    spec = AttentionSpec(score=taylor_score(1), forget_gate=ForgetGate(), structure=Levels())
    tensors = inputs(spec, time=140)
    whole, state, outputs, sizes = attend(spec, **tensors), fresh_state(spec, tensors), [], []
    one = state.bytes
    for t in range(140):
        here = {name: x[:, :, t : t + 1] if x.dim() > 2 else x for name, x in tensors.items()}
        output, state = extend(spec, **here, state=state, form="recurrent")
        outputs.append(output)
        sizes.append(state.bytes / one)
    assert_close(torch.cat(outputs, 2), whole)
    assert max(sizes) < 9 and sizes[127] < 3  # 127 has 7 ones, 128 one


def test_the_size_of_a_state_is_known_beforehand():
    spec = AttentionSpec(score=taylor_score(1), normaliser=None, structure=Levels())
    tensors = inputs(spec, time=31)
    state = extend(spec, **tensors, state=fresh_state(spec, tensors))[1]
    numbers = sum(x[0, 0].numel() for name, x in state.tensors.items() if name.startswith("level."))
    assert state_numbers_after(spec, 8, 5, 31) == numbers == 5 * 9 * 5
    assert state_numbers_after(replace(VARIANTS["softmax"], structure=ChunkEnds(4)), 8, 5, 31) == 7 * 13


def test_a_state_survives_its_tensors_and_rows_can_be_chosen():
    spec = AttentionSpec(score=taylor_score(2), forget_gate=ForgetGate(), structure=Levels())
    tensors = inputs(spec)
    first = {name: x[:, :, :9] if x.dim() > 2 else x for name, x in tensors.items()}
    rest = {name: x[:, :, 9:].flip(0) if x.dim() > 2 else x for name, x in tensors.items()}
    mask = MASKS["padded"](T)["key_mask"]
    state = extend(spec, **first, state=fresh_state(spec, tensors), key_mask=mask[:, :9])[1]
    again = State.from_tensors(state.tensors).select(torch.tensor([1, 0]))
    got = extend(spec, **rest, state=again, key_mask=mask[:, 9:].flip(0))[0]
    assert_close(got.flip(0), attend(spec, **tensors, key_mask=mask)[:, :, 9:])


def test_what_levels_cannot_stand_beside_is_refused():
    for name, message in {"roformer_linear": "feature_sum", "deltanet": "all keys", "gla": "per channel"}.items():
        with pytest.raises(InputError, match=message):
            replace(VARIANTS[name], structure=Levels())
    with pytest.raises(InputError, match="count: expected 2 or more levels, got 1"):
        Levels(1)


def test_a_state_of_another_structure_is_refused():
    spec, other = VARIANTS["log_linear_taylor_2"], VARIANTS["taylor_2"]
    tensors = inputs(spec)
    with pytest.raises(InputError, match="this spec has a LevelState, got a FixedState"):
        extend(spec, **tensors, state=fresh_state(other, tensors))
    assert Window(3) != Levels(3)
