"""Scores against mpmath: Taylor polynomials lose no digits anywhere."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch

from attention.compare import assert_close, seeded
from softmax_rnn.attention import polynomials, scores
from softmax_rnn.attention.parts import Polynomial, power_score, taylor_coefficients, taylor_score

ORDERS = [0, 1, 2, 5, 6, 7, 8, 15, 20, 33, 50, 79, 80, 119, 120]


def exact_taylor(order: int, x: float) -> mpmath.mpf:
    with mpmath.workdps(120):
        term = total = mpmath.mpf(1)
        for n in range(1, order + 1):
            term = term * mpmath.mpf(x) / n
            total += term
        return total


def points(order: int) -> list[float]:
    """−100 … 100, and closely around ±order, where one formula gives way to the other."""
    seams = [sign * order * (1 + e) for sign in (1, -1) for e in (-1e-9, 0.0, 1e-9)]
    return [*np.linspace(-100, 100, 81).tolist(), -0.3, -1e-5, 0.0, 1e-5, 0.3, *seams]


def worst_taylor_error(order: int, x: torch.Tensor) -> float:
    """|got − T| / max(|T|, e^x), the worst of all points."""
    got = polynomials.taylor(order, x)
    assert got.dtype == x.dtype
    worst = 0.0
    for value, t in zip(got.tolist(), x.tolist(), strict=True):
        exact = exact_taylor(order, t)
        worst = max(worst, float(abs(mpmath.mpf(value) - exact) / max(abs(exact), mpmath.exp(t))))
    return worst


@pytest.mark.parametrize("order", ORDERS)
def test_taylor_in_float64(order):
    # One point at a time as well: the branches look at the largest |x| of the tensor.
    x = torch.tensor(points(order), dtype=torch.float64)
    assert worst_taylor_error(order, x) <= 1e-10
    assert max(worst_taylor_error(order, t[None]) for t in x[::7]) <= 1e-10


@pytest.mark.parametrize("order", ORDERS)
def test_taylor_in_float32(order):
    x = torch.tensor([t for t in points(order) if abs(t) <= 80], dtype=torch.float32)
    assert worst_taylor_error(order, x) <= 2e-5


@pytest.mark.parametrize("order", [8, 20, 80])
def test_taylor_of_an_even_order_is_positive(order):
    x = torch.linspace(-200, 200, 4001, dtype=torch.float64)
    assert bool((polynomials.taylor(order, x) > 0).all())


def test_taylor_of_nothing_is_nothing():
    assert polynomials.taylor(20, torch.zeros(0)).shape == (0,)


@pytest.mark.parametrize("order", [3, 20, 79])
def test_exp_radius_is_where_taylor_and_exp_part(order):
    eps = torch.finfo(torch.float64).eps / 8
    radius = polynomials.exp_radius(order, eps)
    with mpmath.workdps(120):
        parting = [abs(exact_taylor(order, x) / mpmath.exp(x) - 1) for x in (-radius, radius, -2 * radius)]
    assert max(parting[:2]) <= eps * (1 + 1e-9)
    assert parting[2] > eps


def test_inside_the_exp_radius_no_digit_is_lost_on_either_side():
    eps = torch.finfo(torch.float64).eps
    radius = polynomials.exp_radius(79, eps / 8)
    for x in (radius, -radius):
        got = polynomials.taylor(79, torch.tensor([x], dtype=torch.float64)).item()
        exact = exact_taylor(79, x)
        assert abs(got - exact) <= 4 * eps * abs(exact)


POLYNOMIALS = {
    "constant": Polynomial(coefficients=(3.0,)),
    "power 3": power_score(3),
    "gaps": Polynomial(coefficients=(1.0, 0.0, -2.0, 0.0, 0.25)),
    "taylor 4": taylor_score(4),
    "taylor 9": taylor_score(9),
    "taylor 79": taylor_score(79),
}


@pytest.mark.parametrize("score", POLYNOMIALS.values(), ids=POLYNOMIALS)
def test_value_and_slope_are_the_polynomial_and_its_derivative(score):
    x = seeded(3, 7, seed=0) * 3
    polynomial = np.polynomial.Polynomial(score.coefficients)
    assert_close(score.series().value(x), torch.from_numpy(polynomial(x.numpy())), 1e-12)
    assert_close(score.series().slope(x), torch.from_numpy(polynomial.deriv()(x.numpy())), 1e-12)


@pytest.mark.parametrize("score", POLYNOMIALS.values(), ids=POLYNOMIALS)
def test_rows_replace_the_coefficients(score):
    x, rows = seeded(3, 7, seed=0), seeded(3, score.degree + 1, seed=1)
    for i in range(3):
        polynomial = np.polynomial.Polynomial(rows[i].numpy())
        assert_close(score.series(rows).value(x)[i], torch.from_numpy(polynomial(x[i].numpy())), 1e-12)
        assert_close(score.series(rows).slope(x)[i], torch.from_numpy(polynomial.deriv()(x[i].numpy())), 1e-12)


@pytest.mark.parametrize("score", POLYNOMIALS.values(), ids=POLYNOMIALS)
def test_gradcheck(score):
    x = (seeded(2, 3, seed=0) * 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: score.series().differentiable(y), x)
    rows = seeded(2, score.degree + 1, seed=1)
    assert torch.autograd.gradcheck(lambda y: score.series(rows).differentiable(y), x)


@pytest.mark.parametrize("score", POLYNOMIALS.values(), ids=POLYNOMIALS)
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
def test_log_bound_bounds_every_weight(score, size):
    x = torch.linspace(-size, size, 201, dtype=torch.float64)
    bound = scores.log_bound(score, torch.tensor(size, dtype=torch.float64))
    assert bool((score.series().value(x).abs().log() <= bound + 1e-12).all())
    exact = sum(abs(c) * size**n for n, c in enumerate(score.coefficients))
    assert math.isclose(float(bound), math.log(exact), rel_tol=1e-12, abs_tol=1e-12)
    assert math.isclose(scores.log_bound_of(score, size), math.log(exact), rel_tol=1e-12, abs_tol=1e-12)


def test_log_bound_does_not_overflow():
    bound = scores.log_bound(taylor_score(79), torch.tensor(1e30, dtype=torch.float64))
    assert math.isclose(float(bound), 79 * math.log(1e30) - math.lgamma(80), rel_tol=1e-12)


def test_horner_is_exact_on_integers():
    x = torch.tensor([-3.0, 0.0, 2.0])
    assert polynomials.horner((1.0, 0.0, 2.0), x).tolist() == [19.0, 1.0, 9.0]
    assert polynomials.horner(taylor_coefficients(0), x).tolist() == [1.0, 1.0, 1.0]
