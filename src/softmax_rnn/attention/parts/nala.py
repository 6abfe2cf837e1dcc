"""NaLaFormer's feature maps: the norm of a query decides how sharp its features are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.feature_maps import FeatureMap, Side

if TYPE_CHECKING:
    from torch import Tensor


class Reading(StrEnum):
    """Two maps have been published under one name."""

    CODE = "code"
    """Of the released code: features of both signs, never negative."""
    PREPRINT = "preprint"
    """Of the first preprint: cos and sin, so that opposite directions inhibit each other."""


@dataclass(frozen=True)
class NormAware(FeatureMap):
    """With d = x/|x| and p = power · (offset + tanh|q|), entry by entry:

    code        φ(q) = [relu(d)^p, relu(−d)^p]        φ(k) = [relu(k^power), relu(−k^power)], the sign of k kept
    preprint    φ(q) = |d|^p ⊙ [cos d, sin d]         φ(k) = |k|^power ⊙ [cos d, sin d]

    The zero vector has features 0.
    """

    kind: ClassVar[str] = "norm_aware"
    spans_orders: ClassVar[bool] = True
    reading: Reading = Reading.CODE
    power: float = 3.0
    offset: float = 0.5

    @property
    def lowest_product(self) -> float | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the code's reading no feature is below 0; cos(a − b) can be."""
        return 0.0 if self.reading is Reading.CODE else None

    def width(self, dim: int) -> int:
        return 2 * dim

    def needs_float64(self, q: Tensor, k: Tensor) -> bool:
        """Powers of keys leave float32 at both ends."""
        largest = float(k.detach().abs().max())
        return not 1e-8 < largest < 1e8

    def features(self, x: Tensor, side: Side) -> Tensor:
        """The size of a key stays, that of a query becomes the exponent."""
        import torch

        from softmax_rnn.attention.rownorm import unit

        direction = unit(x)
        if side.is_query:
            norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            base, power = direction, self.power * (self.offset + norm.tanh())
        else:
            base, power = x, self.power
        if self.reading is Reading.CODE:
            return torch.cat([base.relu() ** power, (-base).relu() ** power], -1)
        size = base.abs() ** power
        return torch.cat([size * direction.cos(), size * direction.sin()], -1)

    def text(self, x: str) -> str:
        return f"nala({x})" if self.reading is Reading.CODE else f"nala′({x})"
