"""Random features of exp beside its Taylor series: unbiased, and with the deviation that is said."""

from __future__ import annotations

import torch

from softmax_rnn.attention.estimates import estimates
from softmax_rnn.attention.explain import explain
from softmax_rnn.attention.parts import RandomFeatures
from softmax_rnn.attention.parts.feature_maps import Side
from softmax_rnn.attention.parts.random_features import relative_deviation
from softmax_rnn.attention.variants import VARIANTS


def drawn_estimates(orthogonal: bool, size: float, cosine: float, draws: int = 400) -> torch.Tensor:
    """φ(q)·φ(k) / exp(q·k/√d) for many seeds; |y_q|² = |y_k|² = size."""
    dim, count = 4, 32
    length = (size * dim**0.5) ** 0.5
    q, k = torch.zeros(2, 1, 1, 1, dim, dtype=torch.float64)
    q[..., 0] = length
    k[..., 0], k[..., 1] = length * cosine, length * (1 - cosine**2) ** 0.5
    side = Side(True, {}, torch.ones(1, 1))
    maps = (RandomFeatures(count, seed, orthogonal) for seed in range(draws))
    products = [(one.features(q, side) * one.features(k, side)).sum() for one in maps]
    return torch.stack(products) / torch.exp((q * k).sum() / dim**0.5)


def test_the_mean_is_exp_and_the_deviation_is_the_formulas():
    for cosine in (-0.5, 0.0, 0.7):
        ratios = drawn_estimates(orthogonal=False, size=0.5, cosine=cosine)
        said = relative_deviation(32, size=0.5, score=0.5 * cosine)
        assert abs(float(ratios.mean()) - 1) < 4 * said / len(ratios) ** 0.5
        assert 0.8 < float(ratios.std()) / said < 1.25
        assert float(drawn_estimates(orthogonal=True, size=0.5, cosine=cosine).std()) < 1.1 * said


def test_explain_shows_both_at_equal_size():
    said = str(explain(VARIANTS["taylor_2"]))
    assert "exp(x) by Taylor order 2 (2,145 features) and by 2,145 random features" in said
    assert "exp(x) by Taylor order 1 (65 features) and by 100 random features" in str(
        explain(VARIANTS["performer_100"])
    )
    assert estimates(VARIANTS["softmax"], 64) == estimates(VARIANTS["linear_elu"], 64) == []
