"""Random features of exp: a stochastic estimate of the same sum that a Taylor series approximates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.constants import constant
from softmax_rnn.attention.parts.feature_maps import FeatureMap, Side
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class RandomFeatures(FeatureMap):
    """φ(x)_m = exp(ω_m·y − |y|²/2)/√count, y = x/d^¼: E φ(q)·φ(k) = exp(q·k/√d) over ω ~ N(0, I).

    The ω are drawn once from the seed, in orthogonal blocks as FAVOR+ draws them; nothing of them is learned or saved.
    """

    kind: ClassVar[str] = "random_features"
    lowest_product: ClassVar[float | None] = 0.0
    count: int = 256
    seed: int = 0
    orthogonal: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.count <= 65536:
            raise InputError(f"count: expected 1 to 65536 features, got {self.count}")

    def width(self, dim: int) -> int:
        return self.count

    def needs_float64(self, q: Tensor, k: Tensor) -> bool:
        """Where a feature may be far below 1: exp(−|ω||y| − |y|²/2)."""
        largest = max(float(x.detach().square().sum(-1).max()) for x in (q, k)) / math.sqrt(q.shape[-1])
        return not largest / 2 + math.sqrt(largest * q.shape[-1]) < 30.0

    def features(self, x: Tensor, side: Side) -> Tensor:
        y = x * x.shape[-1] ** -0.25
        omega = _directions_on(x.device, x.dtype, int(x.shape[-1]), self.count, self.seed, self.orthogonal)
        log = y @ omega.mT - y.square().sum(-1, keepdim=True) / 2
        return (log - math.log(self.count) / 2).exp()

    def text(self, x: str) -> str:
        return f"exp(ω{x}−|{x}|²/2)"


@constant
def _directions_on(device: torch.device, dtype: torch.dtype, *drawn: int | bool) -> Tensor:
    return directions(*drawn).to(device, dtype)  # type: ignore[arg-type]


@constant
def directions(dim: int, count: int, seed: int, orthogonal: bool) -> Tensor:
    """ω (count, dim): rows of N(0, I), orthogonal to each other in blocks of dim where that is wanted."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    if not orthogonal:
        return drawn
    blocks = [torch.randn(dim, dim, generator=generator, dtype=torch.float64) for _ in range(-(-count // dim))]
    turned = torch.cat([torch.linalg.qr(block).Q.mT for block in blocks])[:count]
    return turned * drawn.norm(dim=-1, keepdim=True)


def relative_deviation(features: int, size: float, score: float) -> float:
    """The standard deviation of the estimate of exp(score), relative to it: √((e^s − 1)/features) for independent ω,
    s = |y_q + y_k|² = 2·size + 2·score where |y_q|² = |y_k|² = size. Orthogonal ω do a little better.

    >>> round(relative_deviation(100, size=0.5, score=0.5), 3)
    0.253
    """
    return math.sqrt(math.expm1(min(2 * size + 2 * score, 700.0)) / features)
