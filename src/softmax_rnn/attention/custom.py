"""Custom attentions as plain values: by name in a file of settings, in a JSON file, or written out on a command line.

The values are those of `AttentionSpec.to_dict`; ``like`` takes the parts that are left out from a variant.

>>> define({"taylor_4_rms": {"like": "taylor_4", "normaliser": None, "output_norm": {"kind": "rms"}}})
>>> from softmax_rnn.attention.formula import formula
>>> formula(VARIANTS["taylor_4_rms"])
'o = RMS(Σ w v),  w = Σₙ₌₀…4 (q·k/√d)ⁿ/n!'
>>> definition("softmax") is None, definition("taylor_4_rms")["output_norm"]["kind"]
(True, 'rms')
>>> variant_from("like=taylor_4,normaliser=none,output_norm=rms")
'taylor_4_normaliser_none_output_norm_rms'
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.variant_table import ADDED
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError, found_in, unknown_name
from softmax_rnn.parsing import parse_json
from softmax_rnn.validation import read_json

_PARTS = tuple(field.name for field in fields(AttentionSpec))
_LONGEST = 60
"""Characters of a name made from inline parts; a longer one becomes a digest."""


def define(specs: Mapping[str, Any]) -> None:
    """Give each spec its name in the table; a name that has these parts already is left alone."""
    for name, values in specs.items():
        with found_in(f"variants.{name}"):
            VARIANTS.add(name, spec_of(values))


def spec_of(values: Any) -> AttentionSpec:
    """The spec that these values mean."""
    if not isinstance(values, Mapping):
        raise InputError(f"expected parts by name, got {values!r}")
    parts = dict(values)
    like = parts.pop("like", None)
    if like is not None and not isinstance(like, str):
        raise InputError(f"like: expected the name of a variant, got {like!r}")
    return AttentionSpec.from_dict({**VARIANTS[like].to_dict(), **parts} if like is not None else parts)


def definition(name: str) -> dict[str, Any] | None:
    """The parts of a name that was added to the table, for a process that does not know it; None for any other."""
    row = VARIANTS.row(name) if name in VARIANTS else None
    return row.spec.to_dict() if row is not None and row.group == ADDED else None


def variant_from(text: str) -> str:
    """The name of a variant written as a name, a spec's .json file, inline parts, or JSON text.

    >>> variant_from("softmax"), variant_from("like=softmax,output_norm=l2"), variant_from('{"like": "linear_elu"}')
    ('softmax', 'softmax_output_norm_l2', 'linear_elu')
    >>> variant_from("normaliser=rows")
    Traceback (most recent call last):
    softmax_rnn.errors.UnknownNameError: variant: unknown normaliser kind 'rows'; did you mean 'row_sum'?
    """
    path = Path(text)
    if text.lstrip().startswith("{"):
        with found_in("variant"):
            return _added(_json(text), "custom")
    if "=" in text:
        with found_in("variant"):
            values = _inline(text)
            label = "_".join(re.findall(r"\w+", text.replace("like=", "", 1)))
            plain = re.fullmatch(r"[A-Za-z0-9_.=,]+", text) and not re.search(r"=\d|\d\.", text)
            return _added(values, label, digest=not plain or len(label) > _LONGEST)
    if path.suffix != ".json":
        return text
    values = read_json(path, "variant")
    name = re.sub(r"[^A-Za-z0-9_]+", "_", path.stem)
    with found_in(f"variant: {path}"):
        VARIANTS.add(name, spec_of(values))
    return name


def _added(values: Any, label: str, digest: bool = True) -> str:
    """The name of these parts in the table. Where the label could mean several specs, a digest makes it one."""
    spec = spec_of(values)
    if set(values) == {"like"}:
        return values["like"]
    if digest:
        label = f"{label[:_LONGEST]}_{hashlib.sha256(spec.to_json().encode()).hexdigest()[:8]}"
    VARIANTS.add(label, spec)
    return label


def _inline(text: str) -> dict[str, Any]:
    """Parts written as ``like=NAME,PART=KIND,PART=none,PART.OPTION=VALUE``."""
    values: dict[str, Any] = {}
    options: list[tuple[str, str, Any]] = []
    seen: set[str] = set()
    for piece in re.split(r",(?=\s*[A-Za-z_.]+=)", text):
        key, sign, value = (word.strip() for word in piece.partition("="))
        part, _, option = key.partition(".")
        if not sign or not value:
            raise InputError(f"expected part=value, got {piece!r}")
        if part not in (*_PARTS, "like"):
            raise unknown_name("part", part, (*_PARTS, "like"))
        if key in seen:
            raise InputError(f"{key} is given twice")
        seen.add(key)
        if option:
            options.append((part, option, option_value(value, key)))
        elif part == "like":
            values["like"] = value
        else:
            values[part] = None if value == "none" else {"kind": value}
    base = VARIANTS[values["like"]].to_dict() if "like" in values else AttentionSpec().to_dict()
    for part, option, value in options:
        before = values.get(part, base.get(part))
        if before is None:
            raise InputError(f"{part}.{option}: there is no {part}; give {part}=KIND as well")
        values[part] = {**before, option: value}
    return values


def option_value(text: str, name: str) -> Any:
    """The value of an option: JSON where it is JSON, otherwise the text; ``none`` is null."""
    if text == "none":
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return parse_json(text, name)


def _json(text: str) -> dict[str, Any]:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"expected JSON, a file, parts such as like=softmax,normaliser=none, or a name: {error}"
        ) from None
    except (ValueError, RecursionError):  # digits or nesting without end, which the parser names
        pass
    return parse_json(text, "JSON text")
