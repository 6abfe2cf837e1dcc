"""Padding full of NaN: neither outputs nor gradients see it, and a row without a key is 0."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attention.cases import TIMED, B, E, H, allowed_forms, attention, end_mask, inputs, some
from attention.compare import WEIGHT_SEED, Result, assert_same, run, seeded
from attention.numbers import TIME, cases, quiet
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.variants import VARIANTS

SEEN = end_mask(TIME)


def poisoned(tensors: dict[str, Tensor], value: float) -> dict[str, Tensor]:
    """Whatever stands at padding is this value."""
    actual = {}
    for name, x in tensors.items():
        here = SEEN[:, None, :, None] if x.dim() == 4 else SEEN[:, None]
        actual[name] = torch.where(here, x, value) if name in TIMED else x
    return actual


def masked_result(result: Result) -> Result:
    """Zeros at padding, whatever stands there."""
    real = SEEN[:, None, :, None]
    grads = {
        name: torch.where(real if g.dim() == 4 else SEEN[:, None], g, 0) if name in TIMED else g
        for name, g in result.grads.items()
    }
    return Result(torch.where(real, result.output, 0), grads)


POISONS = [float("nan"), pytest.param(float("inf"), marks=pytest.mark.slow)]


@quiet
@pytest.mark.parametrize("poison", POISONS, ids=str)
@pytest.mark.parametrize(("name", "form"), cases())
def test_neither_outputs_nor_gradients_see_what_stands_at_padding(name, form, poison):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME)
    # A loss looks at real positions only.
    weight = seeded(B, H, TIME, E, seed=WEIGHT_SEED) * SEEN[:, None, :, None]

    def real_output(**given: Tensor) -> Tensor:
        return torch.where(SEEN[:, None, :, None], attend(spec, **given, form=form, key_mask=SEEN), 0)

    clean = run(real_output, tensors, weight)
    got = run(real_output, poisoned(tensors, poison), weight)
    assert_same(masked_result(got), masked_result(clean), torch.float64)


@quiet
@pytest.mark.parametrize(("name", "form"), cases())
def test_a_row_that_sees_no_key_is_exactly_zero_with_finite_gradients(name, form):
    spec = VARIANTS[name]
    got = run(attention(spec, form=form), inputs(spec, time=TIME), key_mask=SEEN)
    assert bool((got.output[0] == 0).all())
    assert bool((got.output[1, :, : int(SEEN[1].long().argmax())] == 0).all())
    assert all(bool(g.isfinite().all()) for g in got.grads.values())
    assert all(bool((got.grads[n][0] == 0).all()) for n in "qkv")


@quiet
@pytest.mark.parametrize("name", some())
def test_nothing_but_padding(name):
    spec = VARIANTS[name]
    nothing = torch.zeros(B, TIME, dtype=torch.bool)
    for form in allowed_forms(spec):
        got = run(attention(spec, form=form), inputs(spec, time=TIME), key_mask=nothing)
        assert bool((got.output == 0).all())
        assert all(bool((g == 0).all()) for g in got.grads.values())
