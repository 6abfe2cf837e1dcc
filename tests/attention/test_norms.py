"""Norms of rows of any size."""

from __future__ import annotations

import pytest
import torch

from attention.cases import NAMES, E, inputs
from attention.compare import DTYPES, assert_close
from attention.numbers import TIME, cases, huge_inputs
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.epilogue import Output
from softmax_rnn.attention.parts import Exp
from softmax_rnn.attention.variants import VARIANTS

L2_NAMES = [name for name in NAMES if "L2norm" in name or "customnorm" in name]


@pytest.mark.parametrize("size", [1e-30, 1e15])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "form"), cases(L2_NAMES))
def test_l2_does_not_see_the_size_of_values(name, form, dtype, size):
    spec = VARIANTS[name]
    tensors = inputs(spec, dtype, time=TIME)
    expected = attend(spec, **inputs(spec, time=TIME), form=form)
    got = attend(spec, **(tensors | {"v": (inputs(spec, time=TIME)["v"] * size).to(dtype)}), form=form)
    assert_close(got, expected)


NORMED = [name for name in NAMES if VARIANTS[name].output_norm is not None and name not in L2_NAMES]


@pytest.mark.parametrize("size", [1e-30, 1e-8, 1e8, 1e30])
@pytest.mark.parametrize(("name", "form"), cases(NORMED))
def test_rms_and_layer_norm_in_float32_equal_float64_for_any_size_of_values(name, form, size):
    spec = VARIANTS[name]
    wide = inputs(spec, time=TIME)
    wide["v"] = wide["v"] * size
    narrow = {n: x.float() for n, x in wide.items()}
    same = {n: x.double() for n, x in narrow.items()}
    assert_close(attend(spec, **narrow, form=form), attend(spec, **same, form="parallel"))


@pytest.mark.parametrize(("name", "form"), cases(L2_NAMES + NORMED))
def test_norms_of_huge_unclamped_weights(name, form):
    """Scores of 1e4 in front of a norm: the factor e^10000 must not be formed."""
    spec = VARIANTS[name]
    got = attend(spec, **huge_inputs(spec, torch.float32, 100), form=form)
    assert bool(got.isfinite().all())
    if name in L2_NAMES and spec.output_gate is None and isinstance(spec.score, Exp):
        length = got.double().norm(dim=-1)
        expected = float(E) if "customnorm" in name else 1.0
        assert bool(((length - expected).abs() < 1e-5 * expected).all())


@pytest.mark.parametrize("log_scale", [None, -60.0, -20.0, 20.0, 60.0])
def test_a_row_of_0_beside_a_huge_one_has_the_gradient_of_its_eps(log_scale):
    """y / √(mean y² + eps) has the slope 1/√eps at 0, in whatever units rows of other sizes need."""
    sizes = torch.tensor([0.0, 1e-37, 1e-30, 1e-12, 1.0, 1e20])
    y = (torch.linspace(-1.0, 1.0, 8) * sizes[:, None])[None, None].requires_grad_()
    wide = y.detach().double().requires_grad_()
    scale = None if log_scale is None else torch.full((1, 1, len(sizes)), log_scale)
    got = Output(y, None, scale).over_root_mean_square(1e-5)
    factor = 1.0 if scale is None else scale.double().exp()[..., None]
    row = wide * factor
    expected = row / (row.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    assert_close(got.detach(), expected.detach())
    weights = torch.linspace(0.0, 1.0, got.numel()).view_as(got)
    (slope,) = torch.autograd.grad((got * weights).sum(), y)
    (known,) = torch.autograd.grad((expected * weights).sum(), wide)
    for index in range(len(sizes)):
        torch.testing.assert_close(slope[0, 0, index].double(), known[0, 0, index], rtol=2e-5, atol=1e-12)
