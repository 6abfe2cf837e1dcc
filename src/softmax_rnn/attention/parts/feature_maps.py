"""Feature maps φ: what is compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Part

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Side:
    """Which side of the dot product is mapped, and what the map may read besides the vectors."""

    is_query: bool
    tensors: Mapping[str, Tensor]
    """The tensors of the call, by name."""
    positions: Tensor
    """The number of each position among the keys of its segment (B, T): 1, 2, 3, …, windows or not."""


def spread(x: Tensor) -> float:
    """How far apart entries of a vector may lie."""
    return 2 * float(x.detach().abs().max())


@dataclass(frozen=True)
class FeatureMap(Part):
    """φ, applied to queries and keys before their dot product."""

    slot: ClassVar[str] = "feature_map"
    lowest_product: ClassVar[float | None] = None
    """No φ(q)·φ(k) is below this; None: unknown."""
    highest_product: ClassVar[float | None] = None
    spans_orders: ClassVar[bool] = False
    """Whether features of one vector lie orders of magnitude apart."""

    def width(self, dim: int) -> int:
        """F, the number of features of a vector of dimension ``dim``."""
        return dim

    def features(self, x: Tensor, side: Side) -> Tensor:
        """φ(x) of shape (B, heads, T, F), x of shape (B, heads, T, D): H heads of queries, K heads of keys."""
        raise NotImplementedError(f"{type(self).__name__} has no method features")

    @property
    def unrotated(self) -> FeatureMap | None:
        """The map without a rotation by position; None: the vectors themselves."""
        return self

    @property
    def always_float64(self) -> bool:
        """Whether float32 has too few digits for these features, whatever they are made of."""
        return False

    def needs_float64(self, q: Tensor, k: Tensor) -> bool:
        """Whether products of these features would leave the range of float32; reads the values."""
        return False

    def text(self, x: str) -> str:
        """φ(x) in a formula."""
        return f"{self.kind}({x})"


NUMBERS_AT_ONCE = 2**18
"""Of more numbers, some heads are mapped at a time, so that the passes over them stay in the cache of a CPU."""


@dataclass(frozen=True)
class EluPlusOne(FeatureMap):
    """φ(x) = elu(x) + 1: x + 1 for positive x, exp(x) otherwise."""

    kind: ClassVar[str] = "elu_plus_one"
    lowest_product: ClassVar[float | None] = 0.0

    def features(self, x: Tensor, side: Side) -> Tensor:
        """exp for the negative side, not elu(x) + 1: the sum rounds to 0 where exp does not."""
        import torch

        from softmax_rnn.attention.exponential import exp_
        from softmax_rnn.attention.host_sync import may_sync

        # A graph must not ask for its length: it would serve no other side of the answer.
        is_long = may_sync(x) and x.dim() == 4 and x.numel() > NUMBERS_AT_ONCE
        if not is_long or (torch.is_grad_enabled() and x.requires_grad):
            return x.clamp(max=0).exp() + x.relu()
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        heads = max(NUMBERS_AT_ONCE // (x.shape[2] * x.shape[3]), 1)
        for some, y in zip(x.flatten(0, 1).split(heads), out.flatten(0, 1).split(heads), strict=True):
            exp_(torch.clamp(some, max=0, out=y)).add_(some.clamp(min=0))
        return out

    def needs_float64(self, q: Tensor, k: Tensor) -> bool:
        """exp(−30)² is still a float32, with all its digits."""
        import torch

        return min(float(torch.aminmax(x.detach()).min) for x in (q, k)) < -30.0  # one pass of min alone is slower

    def text(self, x: str) -> str:
        return f"(elu({x})+1)"


@dataclass(frozen=True)
class Relu(FeatureMap):
    """φ(x) = max(x, 0)."""

    kind: ClassVar[str] = "relu"
    lowest_product: ClassVar[float | None] = 0.0

    def features(self, x: Tensor, side: Side) -> Tensor:
        return x.relu()


@dataclass(frozen=True)
class SoftmaxFeatures(FeatureMap):
    """φ(x) = softmax(x) over the features of a vector, not over time."""

    kind: ClassVar[str] = "softmax_features"
    lowest_product: ClassVar[float | None] = 0.0
    highest_product: ClassVar[float | None] = 1.0

    def features(self, x: Tensor, side: Side) -> Tensor:
        return x.softmax(-1)

    def needs_float64(self, q: Tensor, k: Tensor) -> bool:
        """Where the smallest features leave float32."""
        return spread(q) + spread(k) > 60.0

    def text(self, x: str) -> str:
        return f"softmax({x})"


@dataclass(frozen=True)
class Cosine(FeatureMap):
    """φ(x) = x / |x|, and 0 for the zero vector: the dot product becomes a cosine."""

    kind: ClassVar[str] = "cosine"
    lowest_product: ClassVar[float | None] = -1.0
    highest_product: ClassVar[float | None] = 1.0

    def features(self, x: Tensor, side: Side) -> Tensor:
        from softmax_rnn.attention.rownorm import unit

        return unit(x)

    def text(self, x: str) -> str:
        return f"{x}/|{x}|"


@dataclass(frozen=True)
class SiluQuery(FeatureMap):
    """φ(q) = q σ(q), and keys stay as they are: HGRN2, whose keys are made of its gates."""

    kind: ClassVar[str] = "silu_query"

    def features(self, x: Tensor, side: Side) -> Tensor:
        return x * x.sigmoid() if side.is_query else x

    def text(self, x: str) -> str:
        return f"SiLU({x})" if x == "q" else x
