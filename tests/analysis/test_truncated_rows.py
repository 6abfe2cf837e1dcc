"""T_n of all orders at once against mpmath, and attention cut at every order against the core."""

from __future__ import annotations

import warnings

import mpmath
import pytest
import torch

from softmax_rnn.analysis.truncated_rows import all_orders, first_order_within, truncated_rows
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.nonpositive import NonPositiveWarning
from softmax_rnn.attention.parts import taylor_score
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError

torch.set_num_threads(1)


def test_all_orders_lose_no_digits_between_minus_and_plus_100():
    x = torch.linspace(-100, 100, 41, dtype=torch.float64)
    result = all_orders(x, 120, x.abs())
    worst = 0.0
    with mpmath.workdps(120):
        for i, t in enumerate(x.tolist()):
            term, total = mpmath.mpf(1), mpmath.mpf(0)
            for n in range(121):
                term = term * mpmath.mpf(t) / n if n else term
                total += term
                got = mpmath.mpf(float(result[n, i])) * mpmath.exp(abs(t))
                worst = max(worst, float(abs(got - total) / max(abs(total), mpmath.exp(t))))
    assert worst < 1e-13


@pytest.mark.parametrize("order", [1, 2, 5, 12])
def test_rows_are_those_of_the_core(order):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (2 * torch.randn(9, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    rows = torch.tensor([0, 3, 8])
    seen = rows[:, None] >= torch.arange(9)
    result = truncated_rows(q[rows] @ k.T, seen, v, 12)
    softmax = attend(AttentionSpec(score=taylor_score(170, scale=1.0)), q[None, None], k[None, None], v[None, None])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonPositiveWarning)
        cut = attend(AttentionSpec(score=taylor_score(order, scale=1.0)), q[None, None], k[None, None], v[None, None])
    expected = (cut - softmax)[0, 0, rows].norm(dim=-1) / v.norm(dim=-1).max()
    ordinary = result.errors[order] < 2  # worse errors, and row sums that are not positive, count as 2
    assert bool(ordinary.any()) and torch.allclose(result.errors[order][ordinary], expected[ordinary], atol=1e-9)


def test_softmax_is_reached():
    generator = torch.Generator().manual_seed(1)
    scores = 3 * torch.randn(4, 30, generator=generator, dtype=torch.float64)
    result = truncated_rows(scores, torch.ones(4, 30, dtype=torch.bool), torch.randn(30, 3, dtype=torch.float64), 60)
    assert float(result.errors[60].max()) < 1e-12
    assert torch.allclose(result.mass[60], torch.ones(4, dtype=torch.float64))
    assert torch.allclose(result.numerator[60], torch.ones(4, dtype=torch.float64))
    assert float(result.nonpositive[::2].sum()) == 0


def test_blocks_of_keys_change_nothing(monkeypatch):
    generator = torch.Generator().manual_seed(2)
    scores, values = torch.randn(5, 40, generator=generator), torch.randn(40, 3, generator=generator)
    seen = torch.ones(5, 40, dtype=torch.bool).tril(30)
    whole = truncated_rows(scores, seen, values, 8)
    monkeypatch.setattr("softmax_rnn.analysis.truncated_rows.BLOCK_NUMBERS", 300)
    pieces = truncated_rows(scores, seen, values, 8)
    assert torch.allclose(whole.errors, pieces.errors, atol=1e-12)


def test_first_order_within():
    assert first_order_within([1.0, 0.001, 1.0, 0.001, 0.001], 0.01) == 3
    assert first_order_within([0.001], 0.01) == 0
    assert first_order_within([0.001, 1.0], 0.01) is None
    assert first_order_within([float("nan"), 0.0], 0.01) == 1


def test_scores_that_no_float_can_hold_are_refused():
    with pytest.raises(InputError, match="expected at most 600 in size, got 1000"):
        truncated_rows(torch.full((1, 2), 1000.0), torch.ones(1, 2, dtype=torch.bool), torch.ones(2, 2), 3)
