"""The description of an attention: a frozen value made of orthogonal parts.

Every attention of the paper, and its neighbours, is three steps::

    prologue     per key     u_j = [ input_gate_j · v_j , 1 ]
    contraction  over time   y_i = Σ_{j≤i} f(φ(q_i)·φ(k_j)) · decay(i, j) · u_j
    epilogue     per query   numerator, row sum → normaliser → output gate → output norm → output gate

A part says *what* is computed. How (the forms) and in which order (the plan) live elsewhere, so this file
needs no torch. ``None`` in a field means that the part is absent.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from enum import Enum, StrEnum
from functools import cached_property
from typing import Any, ClassVar

from softmax_rnn.errors import InputError, unknown_name

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


@dataclass(frozen=True)
class AttentionSpec:
    """A whole attention. The default is softmax attention.

    >>> AttentionSpec() == AttentionSpec.from_json(AttentionSpec().to_json())
    True
    >>> AttentionSpec(score=Exp(clamp=5.0), normaliser=Length(), output_gate=OutputGate()).tensors
    ('output_gate',)
    """

    feature_map: FeatureMap | None = None
    score: Score = Exp()
    forget_gate: ForgetGate | None = None
    input_gate: InputGate | None = None
    normaliser: Normaliser | None = RowSum()
    output_gate: OutputGate | None = None
    output_norm: OutputNorm | None = None

    def __post_init__(self) -> None:
        self._check_slots()
        if self.output_gate and self.output_gate.after_norm and not self.output_norm:
            raise InputError("output_gate: after_norm needs an output_norm; without one use after_norm=False")
        if self.output_gate and isinstance(self.normaliser, CumulativeGate):
            raise InputError(
                "normaliser: a cumulative gate reads the tensor output_gate itself, so the spec cannot have"
                " an output_gate as well"
            )

    def _check_slots(self) -> None:
        for field in fields(self):
            part = getattr(self, field.name)
            if part is None and field.name != "score":
                continue
            if not isinstance(part, Part) or part.slot != field.name or not part.kind:
                kinds = ", ".join(Part.registry[field.name])
                raise InputError(f"{field.name}: expected one of {kinds}, got {part!r}")

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """The names of the tensors that `attend` needs beside q, k and v."""
        norm = self.output_norm
        affine = isinstance(norm, (RMSNorm, LayerNorm)) and norm.affine
        needed = {
            "input_gate": self.input_gate is not None,
            "output_gate": self.output_gate is not None or isinstance(self.normaliser, CumulativeGate),
            "forget_gate": self.forget_gate is not None,
            "norm_weight": affine,
            "norm_bias": affine and isinstance(norm, LayerNorm),
            "length_exponent": isinstance(self.normaliser, LearnedLength),
        }
        return tuple(name for name, wanted in needed.items() if wanted)

    @property
    def wants_row_sum(self) -> bool:
        """Whether Σ_j w_ij is needed beside the numerator."""
        return self.normaliser is not None and self.normaliser.reads_row_sum

    @property
    def polynomial(self) -> Polynomial | None:
        """The score as a polynomial with finitely many features, or None when it has no fixed-size state."""
        return self.score.finite_features

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: absent parts are None, the others carry their kind."""
        return {field.name: _part_to_dict(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> AttentionSpec:
        """The inverse of `to_dict`; parts that are left out take their default."""
        if not isinstance(values, dict):
            raise InputError(f"spec: expected parts by name, got a {type(values).__name__}")
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise unknown_name("part", name, known)
        parts: dict[str, Any] = {slot: _part_from_dict(slot, value) for slot, value in values.items()}
        return cls(**parts)

    def to_json(self) -> str:
        """The spec as JSON text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> AttentionSpec:
        """The spec from JSON text."""
        try:
            return cls.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            raise InputError(f"spec: expected JSON, got {text[:40]!r}: {error}") from error


def _part_to_dict(part: Part | None) -> dict[str, Any] | None:
    if part is None:
        return None
    return {"kind": part.kind, **{field.name: _plain(getattr(part, field.name)) for field in fields(part)}}


def _plain(value: Any) -> Any:
    if isinstance(value, Part):
        return _part_to_dict(value)
    # A JSON array has no tuple: lists are what a reader of the file gets back.
    return list(value) if isinstance(value, tuple) else value.value if isinstance(value, Enum) else value


def _part_from_dict(slot: str, values: Any) -> Part | None:
    if values is None:
        return None
    kinds = Part.registry[slot]
    if not isinstance(values, dict) or "kind" not in values:
        raise InputError(f"{slot}: expected an object with a kind ({', '.join(kinds)}), got {values!r}")
    options = {name: value for name, value in values.items() if name != "kind"}
    if not isinstance(values["kind"], str) or values["kind"] not in kinds:
        raise unknown_name(f"{slot} kind", values["kind"], kinds)
    part = kinds[values["kind"]]
    known = [field.name for field in fields(part)]
    for name, value in options.items():
        if name not in known:
            raise unknown_name(f"option of {slot} {part.kind}", name, known)
        if isinstance(value, list):
            options[name] = tuple(value)
        elif name in Part.registry:  # a part of the part
            options[name] = _part_from_dict(name, value)
    try:
        return part(**options)
    except (TypeError, ValueError) as error:
        raise InputError(f"{slot}: {error}") from error
