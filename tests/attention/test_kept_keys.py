"""Kept keys against the literal loop: which keys stay, what becomes of the others, pieces, steps and states."""

from __future__ import annotations

from functools import cache

import pytest
import torch

import oracle
from attention.cases import MASKS, allowed_forms, attention, fresh_state, in_pieces, inputs, step_by_step
from attention.compare import DTYPES, assert_close, assert_same, run
from oracle import identity, taylor_weight
from softmax_rnn.attention.algebra import state_numbers
from softmax_rnn.attention.attend import attend, extend
from softmax_rnn.attention.formula import formula
from softmax_rnn.attention.parts import (
    EluPlusOne,
    Exp,
    ForgetGate,
    KeptKeys,
    Length,
    NearFar,
    Polynomial,
    taylor_score,
)
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.state import State
from softmax_rnn.attention.structures.kept_keys import KeptState
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

KEPT = KeptKeys(3, 1, kept=2)
SPECS = {
    "folded": (
        AttentionSpec(score=taylor_score(2), structure=KEPT),
        oracle.kept_keys(taylor_weight(2, identity), 3, 1, 2),
    ),
    "centred": (
        AttentionSpec(score=taylor_score(2), structure=KeptKeys(3, 1, kept=2, centred=True)),
        oracle.kept_keys(None, 3, 1, 2, centred=True),
    ),
    "dropped": (AttentionSpec(structure=KeptKeys(2, kept=3)), oracle.kept_keys(None, 2, 0, 3)),
}


@cache
def truth(name: str, mask: str):
    spec, literal = SPECS[name]
    return run(literal, inputs(spec), **MASKS[mask](13))


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("mask", MASKS)
def test_kept_keys_equal_the_literal_truth(name, mask):
    spec = SPECS[name][0]
    assert allowed_forms(spec, mask) == ["parallel", "recurrent"]
    for form in allowed_forms(spec, mask):
        for dtype in DTYPES:
            got = run(attention(spec, form=form), inputs(spec, dtype), **MASKS[mask](13))
            assert_same(got, truth(name, mask), dtype)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("mask", ["plain", "padded"])
def test_pieces_and_steps_equal_the_whole(name, mask):
    spec = SPECS[name][0]
    for function in (
        in_pieces(spec, [1, 7, 11]),
        *(step_by_step(spec, prefill=9, form=form) for form in ("parallel", "recurrent")),
    ):
        assert_same(run(function, inputs(spec), **MASKS[mask](13)), truth(name, mask), torch.float64)


@torch.no_grad()
def test_a_budget_for_all_keys_is_softmax_and_an_unused_one_is_near_and_far():
    tensors = inputs(AttentionSpec())
    soft = attend(AttentionSpec(), **tensors)
    assert_close(attend(AttentionSpec(structure=KeptKeys(3, 1, kept=9)), **tensors), soft)
    assert_close(attend(AttentionSpec(score=taylor_score(1), structure=KeptKeys(2, kept=20)), **tensors), soft)
    near_far = attend(AttentionSpec(score=taylor_score(2), structure=NearFar(3, 1)), **tensors)
    kept = attend(AttentionSpec(score=taylor_score(2), structure=KEPT), **tensors)
    assert (kept - soft).abs().mean() < (near_far - soft).abs().mean()


@torch.no_grad()
def test_the_state_has_a_fixed_size_and_survives_selection():
    spec = SPECS["folded"][0]
    tensors = inputs(spec, time=40)
    whole = attend(spec, **tensors)
    state = fresh_state(spec, tensors)
    size = state.bytes
    _, state = extend(spec, **{n: x[:, :, :20] for n, x in tensors.items()}, state=state)
    rows = torch.tensor([1, 0, 1])
    state = State.from_tensors(state.select(rows).tensors)
    assert isinstance(state, KeptState) and state.bytes == size // 2 * 3
    rest, state = extend(spec, **{n: x[rows, :, 20:] for n, x in tensors.items()}, state=state)
    assert_close(rest, whole[rows, :, 20:])
    assert state_numbers(spec, 8, 5) == 45 * 6 + 6 * (8 + 5 + 1)


def test_the_formula_says_what_becomes_of_the_rest():
    assert formula(VARIANTS["heavy_hitters_8"]).endswith("over the last 8 and the first 4 keys and 8 that are kept")
    assert "over all keys, exp(q·k/√d) in place of w for the last 8" in formula(VARIANTS["kept_keys_8"])


def test_what_cannot_be_kept_is_refused():
    with pytest.raises(InputError, match="kept: expected 1 or more, got 0"):
        KeptKeys(3, kept=0)
    for parts, message in (
        ({"feature_map": EluPlusOne()}, "reads q·k; leave out the feature map"),
        ({"forget_gate": ForgetGate()}, "leave out the forget gate"),
        ({"normaliser": Length()}, "kept_keys needs a row_sum"),
        ({"score": Exp(clamp=5.0)}, "without a clamp"),
        ({"structure": KeptKeys(3, kept=2, centred=True)}, "centred needs every order"),
    ):
        with pytest.raises(InputError, match=message):
            AttentionSpec(**({"structure": KEPT} | parts))
    with pytest.raises(InputError, match="depends on the weights of earlier queries"):
        attend(SPECS["dropped"][0], **inputs(AttentionSpec()), form="fused")
    high = AttentionSpec(score=Polynomial(coefficients=(1.0,) * 41), structure=KEPT)
    with pytest.raises(InputError, match="need a state of fixed size"):
        fresh_state(high, inputs(high))
    assert AttentionSpec.from_json(SPECS["folded"][0].to_json()) == SPECS["folded"][0]
