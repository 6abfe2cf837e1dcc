"""Feature maps and symmetric monomials, against their definitions written with itertools."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations_with_replacement

import mpmath
import pytest
import torch

from attention.compare import assert_close, seeded
from softmax_rnn.attention.algebra import n_features
from softmax_rnn.attention.circular import CircularFeatures, walk_features
from softmax_rnn.attention.features import (
    SymmetricFeatures,
    monomials,
    monomials_backward,
    multinomials,
    suffix_starts,
    weight_column,
)
from softmax_rnn.attention.parts import Cosine, EluPlusOne, FeatureMap, Polynomial, Relu, power_score, taylor_score
from softmax_rnn.attention.parts.feature_maps import Side
from softmax_rnn.attention.rownorm import unit

SIZES = [(1, 0), (1, 5), (2, 3), (3, 1), (4, 2), (5, 4), (8, 3)]


def index_lists(dim: int, degree: int) -> list[tuple[int, ...]]:
    return list(combinations_with_replacement(range(dim), degree))


@pytest.mark.parametrize(("dim", "degree"), SIZES)
def test_monomials_are_the_products_over_index_lists_in_order(dim, degree):
    x = seeded(2, dim, 3, seed=0)
    levels = monomials(x, degree)
    assert len(levels) == degree + 1
    for n, level in enumerate(levels):
        expected = [x[:, list(indices)].prod(1) for indices in index_lists(dim, n)]
        assert_close(level, torch.stack(expected, dim=1), 1e-14)


@pytest.mark.parametrize(("dim", "degree"), SIZES)
def test_multinomials_count_the_orderings_of_an_index_list(dim, degree):
    counts = [
        math.factorial(degree) // math.prod(math.factorial(c) for c in Counter(indices).values())
        for indices in index_lists(dim, degree)
    ]
    assert multinomials(dim, degree).tolist() == counts
    assert sum(counts) == dim**degree


@pytest.mark.parametrize(("dim", "degree"), SIZES)
def test_suffixes_start_where_the_first_index_grows(dim, degree):
    if degree == 0:
        assert suffix_starts(dim, 0)[0] == 0
        return
    lists = index_lists(dim, degree)
    starts = [next(n for n, indices in enumerate(lists) if indices[0] >= i) for i in range(dim)]
    assert suffix_starts(dim, degree) == (*starts, len(lists))


@pytest.mark.parametrize(("dim", "degree"), SIZES)
def test_monomials_with_and_without_a_graph_are_equal(dim, degree):
    x = seeded(2, dim, 3, seed=0)
    for a, b in zip(monomials(x, degree), monomials(x.clone().requires_grad_(), degree), strict=True):
        assert torch.equal(a, b)


SCORES = {
    "constant": Polynomial(coefficients=(2.0,)),
    "linear": power_score(1),
    "power 3": power_score(3),
    "taylor 4": taylor_score(4),
    "gaps": Polynomial(coefficients=(0.5, 0.0, -1.5, 0.0, 2.0)),
    "affine": Polynomial(coefficients=(3.0, -1.0)),
}


@pytest.mark.parametrize("dim", [1, 3, 6])
@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_features_of_both_sides_multiply_to_the_score(score, dim):
    features = SymmetricFeatures(score, dim)
    q, k = seeded(2, dim, 4, seed=1), seeded(2, dim, 5, seed=2)
    assert features.count == n_features(score, dim) == features.key(k).shape[1]
    dot = q.mT @ k
    expected = sum(c * dot**n for n, c in enumerate(score.coefficients))
    assert_close(features.query(q, None).mT @ features.key(k), expected, 1e-12)


def test_each_query_can_have_its_own_coefficients():
    score = taylor_score(3)
    features = SymmetricFeatures(score, 3)
    q, k, rows = seeded(2, 3, 4, seed=1), seeded(2, 3, 5, seed=2), seeded(2, 4, 4, seed=3)
    dot = q.mT @ k
    expected = sum(rows[..., n, None] * dot**n for n in range(4))
    assert_close(features.query(q, rows).mT @ features.key(k), expected, 1e-12)


@pytest.mark.parametrize("dim", [1, 3, 6])
@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_hand_written_gradients_equal_autograd(score, dim):
    features = SymmetricFeatures(score, dim)
    x = seeded(2, dim, 4, seed=1).requires_grad_()
    rows = seeded(2, 4, score.degree + 1, seed=3)
    weight = seeded(2, features.count, 4, seed=4)
    for own in (None, rows):
        out = features.query(x, own)
        expected = torch.autograd.grad((out * weight).sum() + 0 * x.sum(), x)[0]
        assert_close(features.query_backward(x.detach(), weight.clone(), own), expected, 1e-12)


def test_monomials_backward_skips_missing_degrees():
    x = seeded(1, 4, 3, seed=1).requires_grad_()
    top, low = seeded(1, 20, 3, seed=2), seeded(1, 4, 3, seed=3)
    levels = monomials(x, 3)
    expected = torch.autograd.grad((levels[3] * top).sum() + (levels[1] * low).sum(), x)[0]
    plain = x.detach()
    got = monomials_backward(plain, monomials(plain, 2), {3: top.clone(), 1: low.clone()})
    assert_close(got, expected, 1e-13)


def test_weight_column_carries_multinomial_and_coefficient():
    score, where = Polynomial(coefficients=(0.0, 3.0, 0.5)), (torch.float64, torch.device("cpu"))
    assert weight_column(score, 2, True, *where).flatten().tolist() == [
        3.0,
        3.0,
        0.5,
        1.0,
        0.5,
    ]
    assert weight_column(score, 2, False, *where).flatten().tolist() == [
        1.0,
        1.0,
        1.0,
        2.0,
        1.0,
    ]


# ---- feature maps


def mapped(part: FeatureMap, x: torch.Tensor) -> torch.Tensor:
    return part.features(x, Side(True, {}, torch.ones(1, 1)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_elu_plus_one_keeps_all_digits_of_very_negative_numbers(dtype):
    x = torch.tensor([-80.0, -20.0, -1e-3, 0.0, 1e-3, 7.0], dtype=dtype)
    exact = [float(mpmath.exp(t) if t <= 0 else t + 1) for t in x.tolist()]
    got = mapped(EluPlusOne(), x)
    relative = (got.double() / torch.tensor(exact, dtype=torch.float64) - 1).abs().max()
    assert relative <= 4 * torch.finfo(dtype).eps
    assert bool((got > 0).all())


def test_relu_is_relu():
    x = torch.tensor([-1.0, 0.0, 2.5])
    assert mapped(Relu(), x).tolist() == [0.0, 0.0, 2.5]


@pytest.mark.parametrize("size", [1e-37, 1e-30, 1e-10, 1.0, 1e10, 1e30, 1e37])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_unit_vectors_of_any_size(size, dtype):
    x = seeded(5, 7, seed=0)
    got = unit((x * size).to(dtype))
    assert_close(got.double(), x / x.norm(dim=-1, keepdim=True), 1e-6 if dtype == torch.float32 else 1e-14)


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e200, 1e300])
def test_unit_vectors_of_any_size_in_float64(size):
    x = seeded(5, 7, seed=0)
    assert_close(unit(x * size), x / x.norm(dim=-1, keepdim=True), 1e-14)


def test_unit_of_zero_is_zero_with_a_finite_gradient():
    x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    y = unit(x)
    y.sum().backward()
    assert torch.equal(y, torch.zeros_like(y))
    assert bool(x.grad.isfinite().all())


def test_unit_has_the_gradient_of_its_formula():
    x = seeded(4, 6, seed=3).requires_grad_()
    weight = seeded(4, 6, seed=4)
    got = torch.autograd.grad((mapped(Cosine(), x) * weight).sum(), x)[0]
    expected = torch.autograd.grad((x / x.norm(dim=-1, keepdim=True) * weight).sum(), x)[0]
    assert_close(got, expected, 1e-13)


def test_a_feature_map_without_a_function_is_named():
    class Strange(FeatureMap):
        pass

    with pytest.raises(NotImplementedError, match="Strange has no method features"):
        mapped(Strange(), torch.ones(2))


CIRCLES = {
    "taylor 2": taylor_score(2),
    "square": power_score(2),
    "without 1": Polynomial(coefficients=(0.5, 0.0, -1.5)),
    "without 0": Polynomial(coefficients=(0.0, 3.0, 0.25)),
}


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("score", CIRCLES.values(), ids=CIRCLES)
def test_features_in_a_circle_are_the_same_in_another_order(score, dim):
    plain, circle = SymmetricFeatures(score, dim), walk_features(score, dim)
    assert isinstance(circle, CircularFeatures)
    x, rows = seeded(2, dim, 4, seed=1), seeded(2, 4, 3, seed=3)
    for own in (None, rows):
        assert_close(circle.query(x, own), circle.arranged(plain.query(x, own)), 1e-14)
        grad = seeded(2, plain.count, 4, seed=4)
        expected = plain.query_backward(x, grad.clone(), own)
        assert_close(circle.query_backward(x, circle.arranged(grad), own), expected, 1e-13)
    assert_close(circle.in_order(circle.key(x)), plain.key(x), 1e-14)
    grad = seeded(2, plain.count, 4, seed=5)
    assert_close(circle.key_backward(x, circle.arranged(grad)), plain.key_backward(x, grad), 1e-13)
    assert torch.equal(circle.in_order(circle.arranged(grad)), grad)


@pytest.mark.parametrize("score", [taylor_score(1), taylor_score(3)])
def test_other_degrees_have_the_order_of_index_lists(score):
    assert type(walk_features(score, 3)) is SymmetricFeatures
