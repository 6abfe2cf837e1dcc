"""Take it apart: an attention put together from menus, and everything that can be said about it.

Menus, options and starting points are read from the parts and the table, so new parts and rows appear by themselves.

>>> kinds("input_gate")[0], "row_sum" in kinds("normaliser"), NONE in kinds("score")
('none', True, False)
>>> default_options("normaliser", "row_sum")
'minimum=none, eps=0.0, detach=false, absolute=false'
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from html import escape
from types import NoneType
from typing import Any

from softmax_rnn.attention.algebra import state_numbers_after
from softmax_rnn.attention.custom import option_value
from softmax_rnn.attention.explain import Explanation, explain
from softmax_rnn.attention.forms import FORMS
from softmax_rnn.attention.parts import Part
from softmax_rnn.attention.plan import Situation, choose
from softmax_rnn.attention.python_text import python_text
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError, found_in
from softmax_rnn.explore.views import chart_html, note_html
from softmax_rnn.report.chart_data import Axis
from softmax_rnn.report.mathml import mathml
from softmax_rnn.report.plots import line_chart, unchecked_charts

NONE = "none"
SLOTS = tuple(field.name for field in fields(AttentionSpec))
CONTEXTS = tuple(2**n for n in range(6, 17))
HEADS = 16
MOST_TEXT = 2_000
_SAMPLES = {int: 8, float: 1.0, bool: False, str: ""}


def kinds(slot: str) -> list[str]:
    """What a part can be; "none" where it can be absent."""
    absent = NoneType in typing.get_args(typing.get_type_hints(AttentionSpec)[slot])
    return [*([NONE] if absent else []), *Part.registry[slot]]


def default_options(slot: str, kind: str) -> str:
    """The options of a kind as text, with their defaults; those without a default have a value that works."""
    if kind == NONE:
        return ""
    part = Part.registry[slot][kind]
    hints = typing.get_type_hints(part)
    return options_text(
        {
            one.name: _sample(one.name, hints[one.name]) if one.default is MISSING else one.default
            for one in fields(part)
        }
    )


def part_choice(part: Part | None) -> tuple[str, str]:
    """The kind of a part and its options as text."""
    if part is None:
        return NONE, ""
    return part.kind, options_text({one.name: getattr(part, one.name) for one in fields(part)})


def options_text(options: Mapping[str, Any]) -> str:
    """Options as ``name=value, name=value``."""
    return ", ".join(f"{name}={_value_text(value)}" for name, value in options.items())


def spec_of_choices(choices: Mapping[str, tuple[str, str]]) -> AttentionSpec:
    """The spec from a kind and options for every slot; an impossible combination says why."""
    values: dict[str, Any] = {}
    for slot, (kind, options) in choices.items():
        with found_in(slot):
            values[slot] = None if kind == NONE else {"kind": kind, **_options(options)}
    return AttentionSpec.from_dict(values)


def _options(text: str) -> dict[str, Any]:
    if len(text) > MOST_TEXT:
        raise InputError(f"options: expected at most {MOST_TEXT:,} characters, got {len(text):,}")
    options: dict[str, Any] = {}
    for piece in re.split(r",(?=\s*[A-Za-z_]+\s*=)", text) if text.strip() else ():
        name, sign, value = (word.strip() for word in piece.partition("="))
        if not sign or not value:
            raise InputError(f"options: expected name=value, got {piece.strip()!r}")
        parsed = option_value(value, name)
        options[name] = {"kind": parsed} if name in Part.registry and isinstance(parsed, str) else parsed
    return options


def _sample(name: str, hint: Any) -> Any:
    if name in Part.registry:
        return next(
            kind for kind, part in Part.registry[name].items() if all(f.default is not MISSING for f in fields(part))
        )
    return [1.0, 1.0, 0.5] if typing.get_origin(hint) is tuple else _SAMPLES.get(hint)


def _value_text(value: Any) -> str:
    if value is None:
        return NONE
    if isinstance(value, Part):
        inner = {one.name: getattr(value, one.name) for one in fields(value)}
        return json.dumps({"kind": value.kind, **{name: _plain(one) for name, one in inner.items()}})
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else getattr(value, "value", value)


def apart_view(spec: AttentionSpec, head_dim: int, context: int) -> tuple[str, str, str, str]:
    """HTML of the formula and its explanation, HTML of its curves, Python, JSON."""
    situation = Situation(1, HEADS, HEADS, context, context, head_dim, head_dim)
    explanation = explain(spec, situation)
    formula = f'<div class="formula" aria-label="{escape(explanation.formula)}">{mathml(explanation.formula)}</div>'
    return formula + _table(explanation, head_dim), _curves(spec, head_dim), python_text(spec), _json(spec)


def _json(spec: AttentionSpec) -> str:
    return json.dumps(spec.to_dict(), indent=2)


def _table(explanation: Explanation, head_dim: int) -> str:
    rows = [
        ("What cancels", explanation.cancellations or ["nothing"]),
        ("Known as", [_known(name) for name in explanation.names] or ["no row of the table: this one is new"]),
        ("Notes", explanation.notes),
        ("Tensors besides q, k, v", [", ".join(explanation.tensors) or "none"]),
        (f"State per head, d = {head_dim}", [explanation.state]),
        ("Each part alone", [f"{name}: {said}" for name, said in explanation.alone.items()]),
        ("Series or features", explanation.estimates),
        (f"Form at {explanation.situation.queries:,} tokens", [f"{explanation.plan.form}: {explanation.plan.reason}"]),
        ("Other forms", [f"{name}: {why}" for name, why in explanation.plan.others.items()]),
    ]
    if explanation.simplified != explanation.formula:
        rows.insert(1, ("The same function", [explanation.simplified]))
    lines = "".join(
        f"<tr><th scope='row'>{escape(name)}</th><td>{'<br>'.join(escape(one) for one in said)}</td></tr>"
        for name, said in rows
        if said
    )
    return f'<div class="explained"><table>{lines}</table></div>'


def _known(name: str) -> str:
    source = VARIANTS.row(name).source
    return f"{VARIANTS.short(name)}{f' ({source})' if source else ''}"


def _curves(spec: AttentionSpec, head_dim: int) -> str:
    """State and time against the context, beside softmax."""
    rows = []
    for title, one in (("softmax", AttentionSpec()), ("this attention", spec)):
        for context in CONTEXTS:
            numbers = state_numbers_after(one, head_dim, head_dim, context)
            situation = Situation(1, HEADS, HEADS, context, context, head_dim, head_dim)
            cost = FORMS[choose(one, situation).form].cost(one, situation) / 1e6
            rows.append({"context": context, "attention": title, "numbers": numbers, "cost": cost})
    across = Axis("context", "context, tokens", log=True)
    with unchecked_charts():
        state = line_chart(
            rows, x=across, y=Axis("numbers", "numbers in a state per head", log=True), series="attention", height=220
        )
        time = line_chart(
            rows, x=across, y=Axis("cost", "forward pass, ms, estimated", log=True), series="attention", height=220
        )
    return (
        note_html(
            f"Against the context, {HEADS} heads: the decoding state per head, and the planner's estimate of the time."
        )
        + chart_html(state, "Numbers in the decoding state per head against the context", height=300)
        + chart_html(time, "Estimated time of a forward pass against the context", height=300)
    )
