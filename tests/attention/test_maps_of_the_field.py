"""Based, ReBased and Hedgehog as flash-linear-attention's plain references compute them, in its layout (B, T, H, D).

Matched: the projection to 16 dimensions happens in front (its q and k have 16 already, so P is the identity here);
scale 1/√16 inside the square or the series; eps 1e-5 (ReBased) and 1e-12 (Based) beside the row sum; one affine map for
heads and sides (ReBased); a matrix per head where theirs is shared, and no bias, which starts at 0 there (Hedgehog).
"""

from __future__ import annotations

import torch
from torch import Tensor

from attention.compare import seeded
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.variants import VARIANTS

B, T, H, D = 2, 11, 3, 16
Q, K, V = (seeded(B, T, H, D, seed=seed) for seed in (1, 2, 3))
EYE = torch.eye(D, dtype=torch.float64).expand(H, D, D)


def by_cumulative_sums(q: Tensor, k: Tensor, eps: float) -> Tensor:
    """(φ(q) · Σ φ(k) v) / (φ(q) · Σ φ(k) + eps), features already made."""
    sums = (k[..., None, :] * V[..., None]).cumsum(1)
    return (sums * q[..., None, :]).sum(-1) / ((q * k.cumsum(1)).sum(-1, keepdim=True) + eps)


def pairs(x: Tensor) -> Tensor:
    """All products of two entries."""
    return (x[..., :, None] * x[..., None, :]).flatten(-2)


def ours(name: str, **tensors: Tensor) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (Q, K, V))
    return attend(VARIANTS[name], q, k, v, **tensors).transpose(1, 2)


def close(got: Tensor, truth: Tensor) -> bool:
    return float((got - truth).abs().max()) <= 1e-10 * float(truth.abs().max())


def test_based():
    def taylor(x: Tensor) -> Tensor:
        return torch.cat([torch.ones_like(x[..., :1]), x / D**0.25, pairs(x) / (2 * D) ** 0.5], -1)

    theirs = by_cumulative_sums(taylor(Q), taylor(K), 1e-12)
    assert close(ours("based_16", query_projection=EYE, key_projection=EYE), theirs)


def test_rebased():
    weight, bias = 1 + 0.1 * seeded(D, seed=4), 0.1 * seeded(D, seed=5)

    def square(x: Tensor) -> Tensor:
        return pairs(torch.nn.functional.layer_norm(x, (D,), weight, bias, 1e-5)) / D**0.5

    theirs = by_cumulative_sums(square(Q), square(K), 1e-5)
    got = ours("rebased", query_projection=EYE, key_projection=EYE, map_weight=weight, map_bias=bias)
    assert close(got, theirs)


def test_hedgehog():
    w = EYE + 0.1 * seeded(H, D, D, seed=6)

    def mimic(x: Tensor) -> Tensor:
        y = 2 * torch.einsum("bthd,hed->bthe", x, w)
        return torch.cat([y, -y], -1).softmax(-1)

    assert close(ours("hedgehog", query_map=w, key_map=w), by_cumulative_sums(mimic(Q), mimic(K), 0.0))
