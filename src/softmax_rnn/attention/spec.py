"""The description of an attention: a frozen value made of orthogonal parts.

Every attention of the paper, and its neighbours, is three steps::

    prologue     per key     u_j = [ input_gate_j · v_j , 1 ], or what a write rule makes of these values
    contraction  over time   y_i = Σ_{j≤i} f(φ(q_i)·φ(k_j)) · decay(i, j) · u_j
    epilogue     per query   numerator, row sum → normaliser → skip → output gate → output norm → output gate

The parts (`parts`) say *what* is computed. How (the forms) and in which order (the plan) are separate, so this file
needs no torch. ``None`` in a field means that the part is absent.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields, replace
from enum import Enum
from functools import cached_property
from typing import Any

from softmax_rnn.attention.parts import (
    Exp,
    FeatureMap,
    Forgetting,
    InputGate,
    Normaliser,
    OutputGate,
    OutputNorm,
    Part,
    Polynomial,
    RowSum,
    Score,
    Skip,
    Structure,
    WriteRule,
)
from softmax_rnn.attention.parts.base import Declaration
from softmax_rnn.errors import InputError, found_in, unknown_name
from softmax_rnn.parsing import parse_json


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
    forget_gate: Forgetting | None = None
    input_gate: InputGate | None = None
    normaliser: Normaliser | None = RowSum()
    skip: Skip | None = None
    output_gate: OutputGate | None = None
    output_norm: OutputNorm | None = None
    write_rule: WriteRule | None = None
    structure: Structure | None = None

    def __post_init__(self) -> None:
        self._check_slots()
        if self.output_gate and self.output_gate.after_norm and not self.output_norm:
            raise InputError("output_gate: after_norm needs an output_norm; without one use after_norm=False")
        if self.write_rule:
            self.write_rule.check(self)
        if self.structure:
            self.structure.check(self)
        if self.forget_gate:
            self.forget_gate.check(self)
        self._check_tensors()
        object.__setattr__(self, "_text", self.to_json())

    def _check_slots(self) -> None:
        for field in fields(self):
            part = getattr(self, field.name)
            if part is None and field.name != "score":
                continue
            if not isinstance(part, Part) or part.slot != field.name or not part.kind:
                kinds = ", ".join(Part.registry[field.name])
                raise InputError(f"{field.name}: expected one of {kinds}, got {part!r}")

    def _check_tensors(self) -> None:
        """No two parts declare a tensor of the same name."""
        slots: dict[str, str] = {}
        for part in self.parts:
            for declared in part.tensors:
                other = slots.setdefault(declared.name, part.slot)
                if other != part.slot:
                    raise InputError(
                        f"{part.slot}: its {_words(part.kind)} reads the tensor {declared.name} itself, so the spec"
                        f" cannot have the {_words(other)} {_words(getattr(self, other).kind)} as well"
                    )

    @property
    def over_time(self) -> Structure:
        """The structure; all keys where there is none."""
        return self.structure or _ALL_KEYS

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The parts that are present; those with gates first."""
        last = ("output_norm", "normaliser", "feature_map", "score")
        names = [field.name for field in fields(self) if field.name not in last]
        names.sort(key=lambda name: name == "forget_gate")
        present = (getattr(self, name) for name in (*names, *last))
        return tuple(part for part in present if part is not None)

    @cached_property
    def declared(self) -> dict[str, Declaration]:
        """The tensors that `attend` needs besides q, k and v, by name."""
        return {declared.name: declared for part in self.parts for declared in part.tensors}

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of the tensors that `attend` needs besides q, k and v."""
        return tuple(self.declared)

    def width(self, key_dim: int) -> int:
        """The dimension of queries and keys behind the feature map."""
        return key_dim if self.feature_map is None else self.feature_map.width(key_dim)

    @property
    def differs_by_head(self) -> bool:
        """Whether query heads that share a key head need separate states."""
        return any(part.differs_by_head for part in self.parts)

    @cached_property
    def running_parts(self) -> tuple[Part, ...]:
        """Those that carry numbers along time, which cannot be taken back."""
        return tuple(part for part in self.parts if part.running_start() is not None)

    @property
    def wants_row_sum(self) -> bool:
        """Whether Σ_j w_ij is needed besides the numerator."""
        return self.normaliser is not None and self.normaliser.reads_row_sum

    @property
    def polynomial(self) -> Polynomial | None:
        """The score as a polynomial with finitely many features, or None when it has no fixed-size state."""
        return self.score.finite_features

    def of_layer(self, layer: int, layers: int) -> AttentionSpec:
        """The spec as layer number ``layer`` of so many has it: some decays depend on the depth."""
        gate = None if self.forget_gate is None else self.forget_gate.of_layer(layer, layers)
        return self if gate == self.forget_gate else replace(self, forget_gate=gate)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: absent parts are None, the others carry their kind."""
        return {field.name: part_to_dict(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> AttentionSpec:
        """The inverse of `to_dict`; parts that are left out take their default."""
        if not isinstance(values, dict):
            raise InputError(f"spec: expected parts by name, got a {type(values).__name__}")
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise unknown_name("part", name, known)
        parts: dict[str, Any] = {slot: part_from_dict(slot, value) for slot, value in values.items()}
        return cls(**parts)

    @property
    def text(self) -> str:
        """`to_json`, made once."""
        return self._text  # pyright: ignore[reportAttributeAccessIssue]

    def to_json(self) -> str:
        """The spec as JSON text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> AttentionSpec:
        """The spec from JSON text."""
        return cls.from_dict(parse_json(text, "spec"))


_ALL_KEYS = Structure()


def check_spec(spec: AttentionSpec) -> None:
    """A spec, and not the name of one."""
    if not isinstance(spec, AttentionSpec):
        raise InputError(f"spec: expected an AttentionSpec, such as VARIANTS[name], got {type(spec).__name__}")


def _words(name: str) -> str:
    return name.replace("_", " ")


def part_to_dict(part: Part | None) -> dict[str, Any] | None:
    """Plain JSON values, with the kind of the part."""
    if part is None:
        return None
    return {"kind": part.kind, **{field.name: _plain(getattr(part, field.name)) for field in fields(part)}}


def _plain(value: Any) -> Any:
    if isinstance(value, Part):
        return part_to_dict(value)
    # A JSON array has no tuple: lists are what a reader of the file gets back.
    return list(value) if isinstance(value, tuple) else value.value if isinstance(value, Enum) else value


def part_from_dict(slot: str, values: Any) -> Part | None:
    """The inverse, for the part of a slot."""
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
        if name in Part.registry:  # a part of the part
            options[name] = part_from_dict(name, value)
    with found_in(slot):
        missing = [one.name for one in fields(part) if one.default is MISSING and one.name not in options]
        if missing:
            raise InputError(f"{part.kind} needs {', '.join(missing)}")
        return part(**options)
