"""A spec in words: its formula, what cancels, its other names, its state, and the form that runs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from softmax_rnn.attention.algebra import (
    can_be_negative,
    cancellations,
    same_names,
    simplify,
    state_numbers,
)
from softmax_rnn.attention.estimates import estimates
from softmax_rnn.attention.formula import formula
from softmax_rnn.attention.parts import Alone, NearFar, Part, RowSum
from softmax_rnn.attention.plan import TYPICAL, Plan, Situation, choose
from softmax_rnn.attention.spec import AttentionSpec, check_spec
from softmax_rnn.attention.variants import VARIANTS


@dataclass(frozen=True)
class Explanation:
    """What there is to say about a spec; ``str()`` of it is text for people."""

    formula: str
    parts: dict[str, str]
    tensors: tuple[str, ...]
    cancellations: list[str]
    simplified: str
    names: list[str]
    notes: list[str]
    state: str
    plan: Plan
    situation: Situation
    alone: dict[str, str] = field(default_factory=dict)
    """What is left of an attention with a near and a far part when the other is taken away."""
    estimates: list[str] = field(default_factory=list)
    """exp cut after an order beside exp estimated by random features, where the spec is one of them."""

    def __str__(self) -> str:
        s = self.situation
        lines = [self.formula, "", "parts"]
        lines += [f"  {name:<12} {text}" for name, text in self.parts.items()]
        lines += ["", f"tensors besides q, k, v: {', '.join(self.tensors) or 'none'}"]
        lines += ["", "what cancels: " + ("nothing" if not self.cancellations else "")]
        lines += [f"  - {text}" for text in self.cancellations]
        if self.simplified != self.formula:
            lines += [f"  the same function: {self.simplified}"]
        lines += ["", f"names of this function: {', '.join(self.names) or 'none in the table'}"]
        lines += [f"note: {note}" for note in self.notes]
        lines += ["", f"state per head (d = {s.key_dim}): {self.state}"]
        if self.alone:
            lines += ["", "each part alone (softmax-rnn terms MODEL measures their losses)"]
            lines += [f"  {name:<12} {text}" for name, text in self.alone.items()]
        lines += ["", *self.estimates] if self.estimates else []
        lines += [
            "",
            f"form at {s.queries} positions, {s.heads} heads: {self.plan.form} ({self.plan.reason})",
        ]
        lines += [f"  {name:<10} {why}" for name, why in self.plan.others.items()]
        return "\n".join(line.rstrip() for line in lines)


def explain(spec: AttentionSpec, situation: Situation = TYPICAL) -> Explanation:
    """Everything the spec says about itself.

    >>> print(str(explain(VARIANTS["softmax"])).splitlines()[0])
    o = Σ w v / Σ w,  w = exp(q·k/√d)
    """
    check_spec(spec)
    parts = {one.name: getattr(spec, one.name) for one in fields(AttentionSpec)}
    names = same_names(spec)
    notes = [VARIANTS.row(name).note for name in names if VARIANTS[name] == spec]
    if isinstance(spec.normaliser, RowSum) and can_be_negative(spec):
        notes.append("weights can be negative, so a row sum can be 0 or negative; attend() reports it")
    return Explanation(
        formula=formula(spec),
        parts={name.replace("_", " "): part_text(part) for name, part in parts.items() if part is not None},
        tensors=spec.tensors,
        cancellations=cancellations(spec),
        simplified=formula(simplify(spec)),
        names=names,
        notes=[note for note in dict.fromkeys(notes) if note],
        state=state_text(spec, situation.key_dim, situation.value_dim),
        plan=choose(spec, situation),
        situation=situation,
        alone=_alone(spec, situation),
        estimates=estimates(spec, situation.key_dim),
    )


def _alone(spec: AttentionSpec, situation: Situation) -> dict[str, str]:
    structure = spec.structure
    if not isinstance(structure, NearFar) or structure.alone is not None:
        return {}
    numbers = state_numbers(spec, situation.key_dim, situation.value_dim)
    exact = structure.near * (situation.key_dim + situation.value_dim)
    sizes = {Alone.NEAR: exact, Alone.FAR: None if numbers is None else numbers - exact}
    return {
        part.value: f"{formula(replace(spec, structure=replace(structure, alone=part)))};"
        + ("" if size is None else f" {size:,} of the numbers of the state")
        for part, size in sizes.items()
    }


def part_text(part: Part) -> str:
    """A part's kind and the options that are not absent."""
    options = {one.name: getattr(part, one.name) for one in fields(part)}
    coefficients = options.pop("coefficients", None)
    said = [f"{name} {value}" for name, value in options.items() if value not in (None, False)]
    if coefficients is not None:
        said.insert(0, f"degree {len(coefficients) - 1}")
    return f"{part.kind}{' (' + ', '.join(said) + ')' if said else ''}"


def state_text(spec: AttentionSpec, key_dim: int, value_dim: int) -> str:
    """The size of the decoding state of a head."""
    numbers = state_numbers(spec, key_dim, value_dim)
    chunk, states = spec.over_time.chunk, spec.over_time.levels - 1
    if numbers is None:
        return f"grows, {key_dim + value_dim} numbers {'per token' if chunk is None else f'for each {chunk} tokens'}"
    if states > 0:
        each = numbers // states
        return f"grows with the logarithm: {each:,} numbers for each 1 among the binary digits of n, at most {states}"
    return f"fixed, {numbers:,} numbers (as many as {-(-numbers // (key_dim + value_dim)):,} tokens of keys and values)"
