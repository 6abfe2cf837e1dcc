"""What reaches the output past the attention: D · v, and a convolution of the values."""

from __future__ import annotations

import pytest
import torch

from attention.cases import MASKS, T, allowed_forms, attention, in_pieces, inputs, step_by_step
from attention.compare import assert_same, run
from oracle import convolved, dot, elu1, exp, f, l2, own_value, sum_v, sum_w
from softmax_rnn.attention.algebra import simplify, state_numbers
from softmax_rnn.attention.formula import formula
from softmax_rnn.attention.parts import ConvolvedValue, EluPlusOne, L2Norm, OwnValue, RowSum, VectorGate
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.paper import linear
from softmax_rnn.errors import InputError

elu = dot(elu1)
CASES = {
    "own": (
        AttentionSpec(skip=OwnValue(), output_norm=L2Norm(), output_gate=VectorGate()),
        f(lambda r: l2(r.x.output_gate[:, r.i] * (sum_v(r, exp) / sum_w(r, exp) + own_value(r)))),
    ),
    "convolved": (
        AttentionSpec(EluPlusOne(), linear(EluPlusOne(), RowSum()).score, skip=ConvolvedValue(3, silu=True)),
        f(lambda r: sum_v(r, elu) / sum_w(r, elu) + convolved(r) * torch.sigmoid(convolved(r))),
    ),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", CASES)
def test_every_form_equals_the_literal_truth(name, mask):
    spec, literal = CASES[name]
    tensors, masks = inputs(spec), MASKS[mask](T)
    truth = run(literal, tensors, **masks)
    for form in allowed_forms(spec, mask):
        assert_same(run(attention(spec, form=form), tensors, **masks), truth, torch.float64)
    if "segment_ids" not in masks:
        assert_same(run(in_pieces(spec, [1, 3, 9]), tensors, **masks), truth, torch.float64)
        assert_same(run(step_by_step(spec, prefill=2), tensors, **masks), truth, torch.float64)


def test_a_row_factor_does_not_cancel_in_front_of_a_norm_that_sees_a_skip():
    spec = AttentionSpec(skip=OwnValue(), output_norm=L2Norm())
    assert simplify(spec) == spec
    assert simplify(AttentionSpec(output_norm=L2Norm())).normaliser is None


def test_words_and_sizes():
    own, conv = CASES["own"][0], CASES["convolved"][0]
    assert formula(own).startswith("o = L2(SiLU(z) ⊙ (Σ w v / Σ w + D vᵢ)),")
    assert formula(conv).startswith("o = Σ w v / Σ w + SiLU(conv3(v)),")
    assert state_numbers(conv, 8, 5) == 8 * (5 + 1) + 3 * 5
    with pytest.raises(InputError, match="width: expected 1 to 64 taps, got 0"):
        ConvolvedValue(0)
