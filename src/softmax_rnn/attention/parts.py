"""The parts of an attention: small frozen values that say *what* is computed, each fit for one field of a spec.

How they are computed is registered elsewhere (`features`, `pointwise`, the forms), so this file needs no torch.

>>> taylor_score(2).coefficients
(1.0, 1.0, 0.5)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from softmax_rnn.errors import InputError

FLOAT32_EPS = 1.1920929e-07
MAX_ORDER = 170
"""171! is no float."""


@dataclass(frozen=True)
class Part:
    """One exchangeable part. ``kind`` is its name in JSON; subclasses register themselves under it."""

    kind: ClassVar[str] = ""
    slot: ClassVar[str] = ""
    """The field of `AttentionSpec` that this part fits into."""
    registry: ClassVar[dict[str, dict[str, type[Part]]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.kind:
            Part.registry.setdefault(cls.slot, {})[cls.kind] = cls


# -- feature maps φ: what is compared ------------------------------------------------------------------


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


# -- scores f: how a dot product becomes a weight ------------------------------------------------------


@dataclass(frozen=True)
class Score(Part):
    """The weight f(x) of a key, x = scale · φ(q)·φ(k), x cut at ``clamp`` from above.

    ``scale=None`` stands for 1/√d, d the dimension of queries and keys.
    """

    slot: ClassVar[str] = "score"
    scale: float | None = None
    clamp: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and not (math.isfinite(self.scale) and self.scale > 0):
            raise InputError(f"scale: expected a positive number or None (1/√d), got {self.scale!r}")
        if self.clamp is not None and not math.isfinite(self.clamp):
            raise InputError(f"clamp: expected a finite number or None, got {self.clamp!r}")

    @property
    def finite_features(self) -> Polynomial | None:
        """The polynomial whose features make a state of fixed size; None where there are infinitely many."""
        return None


@dataclass(frozen=True)
class Exp(Score):
    """f(x) = exp(x): the sum of all Taylor orders."""

    kind: ClassVar[str] = "exp"


@dataclass(frozen=True, kw_only=True)
class Polynomial(Score):
    """f(x) = Σ_n coefficients[n] · x^n: linear, a power, a Taylor polynomial of exp, or any other."""

    kind: ClassVar[str] = "polynomial"
    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "coefficients", tuple(float(c) for c in self.coefficients))
        if not self.coefficients:
            raise InputError("coefficients: expected at least one number, got none")
        if not all(math.isfinite(c) for c in self.coefficients):
            raise InputError(f"coefficients: expected finite numbers, got {self.coefficients}")
        if self.coefficients[-1] == 0:
            raise InputError("coefficients: the last one must not be 0, it sets the degree")

    @property
    def finite_features(self) -> Polynomial | None:
        """Itself; a clamped polynomial is none."""
        return self if self.clamp is None else None

    @property
    def degree(self) -> int:
        """The highest order n with a coefficient."""
        return len(self.coefficients) - 1

    @property
    def orders(self) -> tuple[int, ...]:
        """The orders whose coefficient is not 0; each has a state of its own."""
        return tuple(n for n, c in enumerate(self.coefficients) if c != 0)

    @property
    def is_taylor(self) -> bool:
        """Whether this is Σ_{n≤N} x^n/n!, the Taylor polynomial of exp."""
        return self.coefficients == taylor_coefficients(self.degree)

    @property
    def derivative(self) -> Polynomial | None:
        """f', or None for a constant."""
        slopes = [n * c for n, c in enumerate(self.coefficients)][1:]
        return Polynomial(coefficients=tuple(slopes)) if slopes else None


def taylor_coefficients(order: int) -> tuple[float, ...]:
    """1/n! for n = 0 … order."""
    return tuple(1.0 / math.factorial(n) for n in range(order + 1))


def taylor_score(order: int, scale: float | None = None) -> Polynomial:
    """The Taylor polynomial of exp up to ``order``."""
    if not 0 <= order <= MAX_ORDER:
        raise InputError(f"order: expected 0 to {MAX_ORDER}, got {order}")
    return Polynomial(coefficients=taylor_coefficients(order), scale=scale)


def power_score(power: int, scale: float | None = None) -> Polynomial:
    """f(x) = x^power."""
    if not 0 <= power <= MAX_ORDER:
        raise InputError(f"power: expected 0 to {MAX_ORDER}, got {power}")
    return Polynomial(coefficients=(0.0,) * power + (1.0,), scale=scale)


# -- gates ---------------------------------------------------------------------------------------------


class Decay(StrEnum):
    """How a model turns a raw projection r into the log decay of a step; the core takes the log decay."""

    LOG_SIGMOID = "log_sigmoid"
    """log σ(r), as in the Forgetting Transformer and in power attention."""
    NEGATIVE_SOFTPLUS = "negative_softplus"
    """−softplus(r), as in Mamba-2 and 2Mamba."""
    SCALED = "scaled"
    """r / 1024, as in the reference's gated_softmax_decay; positive values let the past grow."""


@dataclass(frozen=True)
class ForgetGate(Part):
    """decay(i, j) = exp(Σ_{j<r≤i} forget_gate_r): what happens to the past at each step."""

    slot: ClassVar[str] = "forget_gate"
    kind: ClassVar[str] = "forget_gate"
    decay: Decay = Decay.LOG_SIGMOID

    def __post_init__(self) -> None:
        object.__setattr__(self, "decay", Decay(self.decay))


@dataclass(frozen=True)
class InputGate(Part):
    """v_j is multiplied by input_gate_j before it enters the state."""

    slot: ClassVar[str] = "input_gate"
    kind: ClassVar[str] = "input_gate"


@dataclass(frozen=True)
class OutputGate(Part):
    """The output is multiplied by output_gate_i, before or after the output norm."""

    slot: ClassVar[str] = "output_gate"
    kind: ClassVar[str] = "output_gate"
    after_norm: bool = False


# -- normalisers: what stands where softmax has its denominator ----------------------------------------


def _check_eps(eps: float) -> None:
    if not (math.isfinite(eps) and eps >= 0):
        raise InputError(f"eps: expected 0 or more, got {eps!r}")


@dataclass(frozen=True)
class Normaliser(Part):
    """What the numerator is divided by."""

    slot: ClassVar[str] = "normaliser"
    reads_row_sum: ClassVar[bool] = False
    """Whether it looks at Σ_j w_ij, so that the values need a column of ones."""


@dataclass(frozen=True)
class RowSum(Normaliser):
    """÷ max(Σ_j w_ij + eps, minimum): the softmax denominator; ``detach`` stops its gradient."""

    kind: ClassVar[str] = "row_sum"
    reads_row_sum: ClassVar[bool] = True
    minimum: float | None = None
    eps: float = 0.0
    detach: bool = False

    def __post_init__(self) -> None:
        if self.minimum is not None and not (math.isfinite(self.minimum) and self.minimum > 0):
            raise InputError(f"minimum: expected a positive number or None, got {self.minimum!r}")
        _check_eps(self.eps)


@dataclass(frozen=True)
class Length(Normaliser):
    """÷ n_i, the number of keys that query i sees."""

    kind: ClassVar[str] = "length"


@dataclass(frozen=True)
class LearnedLength(Normaliser):
    """÷ n^σ(c), c one number a head: n counted at the query (n_i), or at the key (n_j) as the reference does."""

    kind: ClassVar[str] = "learned_length"
    by_key: bool = False


@dataclass(frozen=True)
class CumulativeGate(Normaliser):
    """÷ max(Σ_{r≤i} exp(output_gate_r), minimum), with ``times_length`` also ÷ n_i; the gate is the raw projection."""

    kind: ClassVar[str] = "cumulative_gate"
    minimum: float | None = None
    times_length: bool = False

    def __post_init__(self) -> None:
        if self.minimum is not None and not (math.isfinite(self.minimum) and self.minimum > 0):
            raise InputError(f"minimum: expected a positive number or None, got {self.minimum!r}")


# -- output norms --------------------------------------------------------------------------------------


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
        _check_eps(self.eps)


@dataclass(frozen=True)
class LayerNorm(OutputNorm):
    """weight · (y − mean y) / √(var y + eps) + bias."""

    kind: ClassVar[str] = "layer"
    eps: float = 1e-5
    affine: bool = True

    def __post_init__(self) -> None:
        _check_eps(self.eps)
