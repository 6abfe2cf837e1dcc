"""Gradients of gradients: right where a form has them, refused in one line where it has none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradgradcheck
from torch.utils.checkpoint import checkpoint

from attention.cases import NAMES, allowed_forms, attention, inputs
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.parts import Polynomial
from softmax_rnn.attention.ranges.kinds import ExpOnRange, FixedRange
from softmax_rnn.attention.rownorm import over_root, unit
from softmax_rnn.attention.scores import Powers, Raised, RowChebyshev, RowPowers, Taylor
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

TWICE = ("parallel", "recurrent")
CHECKED = {
    # one name per normaliser, norm, gate and feature map
    **{
        name: VARIANTS[name]
        for name in (
            "softmax",
            "softmax_clamp_denom",
            "gated_softmax",
            "gated_softmax_decay",
            "cumulative_gated_softmax",
            "gated_softmax_no_gate_L2norm_nodivS_noclamp",
            "linear_elu",
            "linear_cosine",
            "linear_cosine_by_key",
            "taylor_2",
            "power_attention_2",
        )
    },
    "rms": next(VARIANTS[name] for name in NAMES if getattr(VARIANTS[name].output_norm, "kind", "") == "rms"),
    # a range that is found from the keys is taken without gradient, so only a fixed one can be checked by differences
    "on a range": AttentionSpec(score=ExpOnRange(degree=4, range=FixedRange(low=(-3.0,), high=(2.0,)))),
}


def tiny(spec: AttentionSpec) -> dict[str, Tensor]:
    """Four positions, one batch row, two heads that share keys."""
    return inputs(spec, time=4, batch=1, heads=2, kv_heads=1, key_dim=3)


@pytest.mark.parametrize("form", TWICE)
@pytest.mark.parametrize("name", CHECKED)
def test_second_derivatives_are_those_of_the_outputs(name, form):
    tensors = {n: x.clone().requires_grad_() for n, x in tiny(CHECKED[name]).items()}
    function = attention(CHECKED[name], form=form)
    assert gradgradcheck(
        lambda *xs: function(**dict(zip(tensors, xs, strict=True))), tuple(tensors.values()), fast_mode=True
    )


REFUSED = [
    (name, form)
    for name in ("softmax", "gated_softmax_decay", "taylor_2", "gated_softmax_no_gate_L2norm_nodivS_noclamp")
    for form in allowed_forms(VARIANTS[name])
    if form not in TWICE
]


@pytest.mark.parametrize(("name", "form"), REFUSED)
def test_forms_without_one_refuse_it_and_say_which_have_it(name, form):
    tensors = {n: x.clone().requires_grad_() for n, x in tiny(VARIANTS[name]).items()}
    out = attention(VARIANTS[name], form=form)(**tensors)
    grads = torch.autograd.grad(out.square().sum(), list(tensors.values()), create_graph=True)
    plain = attention(VARIANTS[name], form="parallel")(**tensors)
    truth = torch.autograd.grad(plain.square().sum(), list(tensors.values()))
    for got, expected in zip(grads, truth, strict=True):
        assert torch.allclose(got, expected, rtol=1e-8, atol=1e-10)
    for tensor in ("q", "k", "v"):
        with pytest.raises(InputError, match=f"form: '{form}' has no second derivative; form='parallel'"):
            torch.autograd.grad(grads[0].square().sum(), tensors[tensor], retain_graph=True)


def test_norms_can_be_differentiated_twice():
    y = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    eps = torch.tensor([[0.1], [0.2], [0.3]], dtype=torch.float64, requires_grad=True)
    assert gradgradcheck(unit, y)
    assert gradgradcheck(lambda y, eps: over_root(y, eps, 5), (y, eps))


ROWS = torch.tensor([[0.3, -0.2, 0.5, 0.1], [1.0, 0.4, -0.3, 0.2]], dtype=torch.float64)
SERIES = {
    "powers": Powers((0.5, -1.0, 0.25, 2.0)),
    "constant": Powers((2.0,)),
    "taylor": Taylor(9),
    "scaled taylor": Taylor(4, divisor=2),
    "rows": RowPowers(ROWS),
    "chebyshev": RowChebyshev(ROWS),
    "squared": Raised(RowChebyshev(ROWS), 2),
    "cube of taylor": Raised(Taylor(2, divisor=3), 3),
}


@pytest.mark.parametrize("series", SERIES.values(), ids=SERIES)
def test_series_can_be_differentiated_twice(series):
    x = torch.tensor([[0.3, -0.7, 0.9], [-0.2, 0.5, 0.1]], dtype=torch.float64, requires_grad=True)
    assert torch.equal(series.differentiable(x), series.value(x.detach()))
    assert torch.autograd.gradcheck(series.differentiable, x)
    assert gradgradcheck(series.differentiable, x)
    slope = torch.autograd.grad(series.differentiable(x).sum(), x)[0]
    assert torch.allclose(slope, series.slope(x.detach()), rtol=1e-13)


def test_the_score_of_a_plain_polynomial_is_its_series():
    assert Polynomial(coefficients=(0.0, 1.0, 3.0)).series() == Powers((0.0, 1.0, 3.0))


@pytest.mark.parametrize(
    ("name", "form"),
    [("softmax", "fused"), ("softmax_l2", "fused"), ("taylor_2", "parallel"), ("taylor_2", "recurrent")],
)
def test_functional_gradients_are_those_of_autograd(name, form):
    q, k, v = torch.randn(3, 1, 2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def loss(x: Tensor) -> Tensor:
        return attend(VARIANTS[name], x, k, v, form=form).sin().sum()

    x = q.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(x), x)
    assert torch.equal(torch.func.grad(loss)(q), expected)


@pytest.mark.parametrize(
    ("name", "form"),
    [("taylor_2", "chunked"), ("taylor_2", "blockwise"), ("softmax", "fused"), ("deltanet", "chunked")],
)
def test_activations_that_are_computed_again_give_the_same_gradients(name, form):
    spec = VARIANTS[name]
    given = inputs(spec, time=40)
    tensors = {one: x.requires_grad_() for one, x in given.items() if isinstance(x, Tensor) and x.is_floating_point()}

    def output(**values: Tensor) -> Tensor:
        return attend(spec, **values, form=form).square().sum()

    plain = torch.autograd.grad(output(**tensors), list(tensors.values()))
    again = checkpoint(output, use_reentrant=False, **tensors)
    assert isinstance(again, Tensor)
    for one, other in zip(torch.autograd.grad(again, list(tensors.values())), plain, strict=True):
        assert torch.equal(one, other)
