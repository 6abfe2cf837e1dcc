"""Feature maps that depend on the position: cosFormer's weights, and a rotation after any map."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Declaration
from softmax_rnn.attention.parts.feature_maps import FeatureMap, Side
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CosFormer(FeatureMap):
    """φ(x_i) = [cos θ_i · relu(x), sin θ_i · relu(x)], θ_i = π/2 · i/length: the weight is
    relu(q)·relu(k) · cos(π/2 · (i − j)/length), which is not negative up to a distance of ``length``.
    """

    kind: ClassVar[str] = "cosformer"
    length: int = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 1:
            raise InputError(f"length: expected 1 or more positions, got {self.length}")

    def width(self, dim: int) -> int:
        return 2 * dim

    def features(self, x: Tensor, side: Side) -> Tensor:
        """Positions are those of the keys that are seen: 1, 2, … in each segment."""
        import torch

        angle = (side.positions.double() * (math.pi / 2 / self.length))[:, None, :, None]
        y = x.relu()
        return torch.cat([y * angle.cos().to(x.dtype), y * angle.sin().to(x.dtype)], -1)

    def text(self, x: str) -> str:
        return f"relu({x})[cos θ, sin θ]"


@dataclass(frozen=True)
class Rotated(FeatureMap):
    """R_i φ(x): rotary positions after a feature map (absent: of x itself).

    Neighbouring features are a pair, and pair p of P turns by i · base^(−p/P), in each of ``blocks`` equal stretches
    of the features by itself; a feature without a partner stays.
    """

    kind: ClassVar[str] = "rotated"
    feature_map: FeatureMap | None = None
    base: float = 10_000.0
    blocks: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.blocks < 1:
            raise InputError(f"blocks: expected 1 or more, got {self.blocks}")

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        return () if self.feature_map is None else self.feature_map.tensors

    @property
    def unrotated(self) -> FeatureMap | None:
        return self.feature_map

    def width(self, dim: int) -> int:
        return dim if self.feature_map is None else self.feature_map.width(dim)

    @property
    def always_float64(self) -> bool:
        """Where features of φ span orders of magnitude: a rotated sum of those cancels."""
        return self.feature_map is not None and (self.feature_map.spans_orders or self.feature_map.always_float64)

    def needs_float64(self, q: Tensor, k: Tensor) -> bool:
        return self.feature_map is not None and self.feature_map.needs_float64(q, k)

    def features(self, x: Tensor, side: Side) -> Tensor:
        """Angles in float64: at position 60,000 float32 has few digits of them left."""
        import torch

        y = x if self.feature_map is None else self.feature_map.features(x, side)
        if y.shape[-1] % self.blocks:
            raise InputError(f"feature_map: {y.shape[-1]} features cannot be rotated in {self.blocks} blocks")
        y = y.unflatten(-1, (self.blocks, -1))
        pairs = y.shape[-1] // 2
        speed = self.base ** (-torch.arange(pairs, device=x.device, dtype=torch.float64) / max(pairs, 1))
        # Counted from 0, for only distances matter: the first key, alone with its query, is then compared as it is.
        # Turned, large features without a common one would be added up to almost nothing.
        angle = (side.positions.double() - 1)[:, None, :, None, None] * speed
        cos, sin = angle.cos().to(y.dtype), angle.sin().to(y.dtype)
        even, odd = y[..., 0 : 2 * pairs : 2], y[..., 1 : 2 * pairs : 2]
        turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)
        return torch.cat([turned, y[..., 2 * pairs :]], -1).flatten(-2)

    def text(self, x: str) -> str:
        return f"R{x if self.feature_map is None else self.feature_map.text(x)}"
