"""Statistics against closed forms (constant, two-valued, Gaussian scores) and a literal double loop."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

from softmax_rnn.analysis.magnitudes import Magnitudes
from softmax_rnn.analysis.remainder import guaranteed_order, output_error
from softmax_rnn.analysis.sketch import QUANTILE_ERROR, Sketch
from softmax_rnn.analysis.statistics import TermStatistics
from softmax_rnn.errors import InputError

torch.set_num_threads(1)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("score", [0.5, 7.0, 100.0, 5000.0])
def test_constant_scores(score):
    result = Magnitudes(1, 150)
    result.add(torch.full((1, 9), -score))
    for n in (0, 1, 40, 150):
        assert result.log_means()[0, n].item() == pytest.approx(n * math.log(score) - math.lgamma(n + 1), abs=1e-9)
    # The largest of s^n/n! stands at n = s (and s − 1, where s is whole).
    assert result.dominant()[0] in (min(150, int(score)), min(150, max(int(score) - 1, 0)))
    assert result.shares()[0, -1].item() == pytest.approx(
        float(mpmath.gammainc(151, score, mpmath.inf, regularized=True)), rel=1e-9, abs=1e-12
    )


def test_two_valued_scores():
    result = Magnitudes(2, 20)
    result.add(torch.tensor([[1.0, -4.0], [2.0, 3.0]]))
    for row, (a, b) in enumerate(((1, 4), (2, 3))):
        for n in (0, 3, 20):
            expected = (a**n + b**n) / 2 / math.factorial(n)
            assert result.log_means()[row, n].exp().item() == pytest.approx(expected, rel=1e-12)


def test_gaussian_scores():
    sigma, result = 2.0, Magnitudes(1, 10)
    for seed in range(10):
        result.add(sigma * random(1, 200_000, seed=seed))
    for n in (1, 2, 4, 6):
        # E|s|^n = σ^n 2^(n/2) Γ((n+1)/2)/√π
        expected = n * math.log(sigma) + n / 2 * math.log(2) + math.lgamma((n + 1) / 2) - math.log(math.pi) / 2
        assert result.log_means()[0, n].item() == pytest.approx(expected - math.lgamma(n + 1), abs=0.02)


def test_scores_of_zero_have_only_order_0():
    result = Magnitudes(1, 3)
    result.add(torch.zeros(1, 4))
    assert result.log_means()[0].tolist()[0] == 0 and result.dominant() == [0]
    assert result.log_means()[0, 1].exp().item() < 1e-200


def test_sketch_of_pieces_is_the_sketch_of_all():
    values = 5 * random(2, 10_000)
    whole, left, right = Sketch(2), Sketch(2), Sketch(2)
    whole.add(values)
    left.add(values[:, :3_000])
    right.add(values[:, 3_000:])
    left.merge(right)
    for one in (whole, left):
        assert torch.allclose(one.mean, values.mean(1)) and torch.allclose(one.deviation, values.std(1, correction=0))
        assert torch.equal(one.low, values.amin(1)) and torch.equal(one.high, values.amax(1))
        for part in (0.001, 0.3, 0.5, 0.999):
            exact = values.quantile(part, dim=1, interpolation="lower")
            assert float((one.quantile(part) - exact).abs().max()) <= QUANTILE_ERROR + 1e-2  # gaps between values
    assert torch.equal(whole.bins, left.bins)


def test_numbers_beyond_the_histogram_are_still_the_ends():
    sketch = Sketch(1)
    sketch.add(torch.tensor([[-1e6, 0.0, 1e6]]))
    assert sketch.low.item() == -1e6 and sketch.high.item() == 1e6 and sketch.mean.item() == 0


def literal(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, order: int
) -> tuple[list[float], list[float], list[float]]:
    """Scores, mean |s^n/n!| and errors of one head by loops, in 60 digits."""
    scores, errors, largest = [], [], max(float(row.norm()) for row in v)
    with mpmath.workdps(60):
        for i in range(len(q)):
            row = [mpmath.mpf(float(q[i] @ k[j])) for j in range(i + 1)]
            scores += row
            outputs = []
            for function in (mpmath.exp, lambda s: mpmath.fsum(s**n / mpmath.factorial(n) for n in range(order + 1))):
                weights = [function(s) for s in row]
                total = mpmath.fsum(weights)
                outputs.append(
                    [mpmath.fsum(w * float(v[j, e]) for j, w in enumerate(weights)) / total for e in range(2)]
                )
            gap = mpmath.sqrt(sum((a - b) ** 2 for a, b in zip(*outputs, strict=True)))
            errors.append(float(gap / largest))
        terms = [
            float(mpmath.fsum(abs(s) ** n for s in scores) / len(scores) / mpmath.factorial(n))
            for n in range(order + 1)
        ]
    return [float(s) for s in scores], terms, errors


def test_a_head_is_what_loops_find():
    q, k, v = 3 * random(1, 12, 2, seed=1), random(1, 12, 2, seed=2), random(1, 12, 2, seed=3)
    statistics = TermStatistics(1, 8)
    statistics.add(q, k, v)
    result = statistics.heads(0.01)[0]
    scores, terms, errors = literal(q[0], k[0], v[0], 8)
    assert result.pairs == len(scores) == 78 and result.queries == 12
    assert result.low == pytest.approx(min(scores)) and result.high == pytest.approx(max(scores))
    assert result.mean == pytest.approx(sum(scores) / 78)
    assert [math.exp(x) for x in result.log_terms] == pytest.approx(terms, rel=1e-10)
    assert result.error[8] == pytest.approx(sum(errors) / 12, rel=1e-8)
    assert result.worst_error[8] == pytest.approx(max(errors), rel=1e-8)
    assert result.term_share == sorted(result.term_share) and result.term_share[-1] <= 1


def test_windows_add_up_and_blocks_change_nothing(monkeypatch):
    q, k, v = random(4, 40, 3), random(2, 40, 3, seed=5), random(2, 40, 3, seed=6)
    whole = TermStatistics(4, 6)
    whole.add(q, k, v)
    monkeypatch.setattr("softmax_rnn.analysis.statistics.BLOCK", 7)
    blocks = TermStatistics(4, 6)
    blocks.add(q, k, v)
    one, other = whole.layer(0.01), blocks.layer(0.01)
    assert one.pairs == other.pairs == 4 * 40 * 41 // 2
    assert one.log_terms == pytest.approx(other.log_terms, abs=1e-12) and one.quantiles == other.quantiles
    blocks.add(q, k, v)
    twice = blocks.layer(0.01)
    assert twice.pairs == 2 * one.pairs and twice.deviation == pytest.approx(one.deviation)
    assert twice.error == pytest.approx(one.error)


def test_the_guaranteed_order_holds():
    statistics = TermStatistics(1, 60)
    statistics.add(2 * random(1, 64, 4), random(1, 64, 4, seed=1), random(1, 64, 4, seed=2))
    result = statistics.heads(1e-3)[0]
    assert result.order_guaranteed == guaranteed_order(max(-result.low, result.high), 1e-3)
    assert result.order_within_all is not None and result.order_within is not None
    assert result.order_within <= result.order_within_all <= result.order_guaranteed
    radius = max(-result.low, result.high)
    assert all(worst <= output_error(n, radius) + 1e-12 for n, worst in enumerate(result.worst_error))


def test_bad_arguments():
    with pytest.raises(InputError, match="orders: expected 1 to 1000, got 0"):
        TermStatistics(1, 0)
    with pytest.raises(InputError, match="expected at least one window"):
        TermStatistics(1, 2).heads(0.1)
