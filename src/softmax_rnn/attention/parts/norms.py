"""Output norms over the value dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softmax_rnn.attention.parts.base import Part, check_eps

FLOAT32_EPS = 1.1920929e-07


@dataclass(frozen=True)
class OutputNorm(Part):
    """A norm of the output over the value dimension."""

    slot: ClassVar[str] = "output_norm"


@dataclass(frozen=True)
class L2Norm(OutputNorm):
    """y / |y|, and 0 for y = 0; with ``times_dim`` multiplied by the value dimension."""

    kind: ClassVar[str] = "l2"
    times_dim: bool = False


@dataclass(frozen=True)
class RMSNorm(OutputNorm):
    """weight · y / √(mean y² + eps)."""

    kind: ClassVar[str] = "rms"
    eps: float = FLOAT32_EPS
    affine: bool = True

    def __post_init__(self) -> None:
        check_eps(self.eps)


@dataclass(frozen=True)
class LayerNorm(OutputNorm):
    """weight · (y − mean y) / √(var y + eps) + bias."""

    kind: ClassVar[str] = "layer"
    eps: float = 1e-5
    affine: bool = True

    def __post_init__(self) -> None:
        check_eps(self.eps)
