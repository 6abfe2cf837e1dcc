"""Feature maps φ: what is compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softmax_rnn.attention.parts.base import Part


@dataclass(frozen=True)
class FeatureMap(Part):
    """φ, applied to queries and keys before their dot product."""

    slot: ClassVar[str] = "feature_map"


@dataclass(frozen=True)
class EluPlusOne(FeatureMap):
    """φ(x) = elu(x) + 1: x + 1 for positive x, exp(x) otherwise."""

    kind: ClassVar[str] = "elu_plus_one"


@dataclass(frozen=True)
class Relu(FeatureMap):
    """φ(x) = max(x, 0)."""

    kind: ClassVar[str] = "relu"


@dataclass(frozen=True)
class Cosine(FeatureMap):
    """φ(x) = x / |x|, and 0 for the zero vector: the dot product becomes a cosine."""

    kind: ClassVar[str] = "cosine"
