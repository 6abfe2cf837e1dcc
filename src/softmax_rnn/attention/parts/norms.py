"""Output norms over the value dimension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Declaration, Parameter, Part, check_eps

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.epilogue import Output

FLOAT32_EPS = 1.1920929e-07
WEIGHT = Declaration("norm_weight", "E", Parameter(1.0))
BIAS = Declaration("norm_bias", "E", Parameter(0.0))
WEIGHT_BY_HEAD = Declaration("norm_weight", "H 1 E", Parameter(1.0))


@dataclass(frozen=True)
class OutputNorm(Part):
    """A norm of the output over the value dimension."""

    slot: ClassVar[str] = "output_norm"
    scale_invariant: ClassVar[bool] = False
    """Whether it undoes every positive factor of a row, exactly and not up to an eps."""

    def norm(self, output: Output, tensors: Mapping[str, Tensor]) -> Tensor:
        """The norm of the row's true value."""
        raise NotImplementedError(f"{type(self).__name__} has no method norm")

    def text(self, x: str) -> str:
        """The norm of x in a formula."""
        return f"{self.kind}({x})"


@dataclass(frozen=True)
class L2Norm(OutputNorm):
    """y / |y|, and 0 for y = 0; with ``times_dim`` multiplied by the value dimension."""

    kind: ClassVar[str] = "l2"
    scale_invariant: ClassVar[bool] = True
    times_dim: bool = False

    def norm(self, output: Output, tensors: Mapping[str, Tensor]) -> Tensor:
        y = output.unit()
        return y * y.shape[-1] if self.times_dim else y

    def text(self, x: str) -> str:
        return f"d · L2({x})" if self.times_dim else f"L2({x})"


@dataclass(frozen=True)
class RMSNorm(OutputNorm):
    """weight · y / √(mean y² + eps), the mean over the channels of a head, or of all heads (Mamba-2, HGRN2)."""

    kind: ClassVar[str] = "rms"
    eps: float = FLOAT32_EPS
    affine: bool = True
    across_heads: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eps(self.eps)

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """norm_weight, each head its own where the mean is over all of them."""
        return () if not self.affine else (WEIGHT_BY_HEAD,) if self.across_heads else (WEIGHT,)

    def norm(self, output: Output, tensors: Mapping[str, Tensor]) -> Tensor:
        if self.across_heads:
            heads = output.y.shape[1]
            y = output.heads_joined().over_root_mean_square(self.eps)[:, 0].unflatten(-1, (heads, -1)).transpose(1, 2)
        else:
            y = output.over_root_mean_square(self.eps)
        return y * tensors["norm_weight"] if self.affine else y

    def text(self, x: str) -> str:
        return f"RMS_all({x})" if self.across_heads else f"RMS({x})"


@dataclass(frozen=True)
class LayerNorm(OutputNorm):
    """weight · (y − mean y) / √(var y + eps) + bias."""

    kind: ClassVar[str] = "layer"
    eps: float = 1e-5
    affine: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eps(self.eps)

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        return (WEIGHT, BIAS) if self.affine else ()

    def norm(self, output: Output, tensors: Mapping[str, Tensor]) -> Tensor:
        """The platform's, where squares of the row are floats."""
        import torch

        weight, bias = tensors.get("norm_weight"), tensors.get("norm_bias")
        if output.is_moderate():
            row = output.value()
            weight, bias = (None if x is None else x.to(row.dtype) for x in (weight, bias))  # sums may be wider
            return torch.nn.functional.layer_norm(row, row.shape[-1:], weight, bias, self.eps)
        y = output.centred().over_root_mean_square(self.eps)
        return y if weight is None or bias is None else torch.addcmul(bias, y, weight)

    def text(self, x: str) -> str:
        return f"LN({x})"
