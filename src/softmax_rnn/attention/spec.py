"""The description of an attention: a frozen value made of orthogonal parts.

Every attention of the paper, and its neighbours, is three steps::

    prologue     per key     u_j = [ input_gate_j · v_j , 1 ]
    contraction  over time   y_i = Σ_{j≤i} f(φ(q_i)·φ(k_j)) · decay(i, j) · u_j
    epilogue     per query   numerator, row sum → normaliser → output gate → output norm → output gate

The parts (`parts`) say *what* is computed. How (the forms) and in which order (the plan) live elsewhere, so this file
needs no torch. ``None`` in a field means that the part is absent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from enum import Enum
from functools import cached_property
from typing import Any

from softmax_rnn.attention.parts import (
    CumulativeGate,
    Exp,
    FeatureMap,
    ForgetGate,
    InputGate,
    LayerNorm,
    LearnedLength,
    Normaliser,
    OutputGate,
    OutputNorm,
    Part,
    Polynomial,
    RMSNorm,
    RowSum,
    Score,
)
from softmax_rnn.errors import InputError, unknown_name


@dataclass(frozen=True)
class AttentionSpec:
    """A whole attention. The default is softmax attention.

    >>> AttentionSpec() == AttentionSpec.from_json(AttentionSpec().to_json())
    True
    >>> from softmax_rnn.attention.parts import Length
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


def check_spec(spec: AttentionSpec) -> None:
    """A spec, and not the name of one."""
    if not isinstance(spec, AttentionSpec):
        raise InputError(f"spec: expected an AttentionSpec, such as VARIANTS[name], got {type(spec).__name__}")


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
