"""Attentions of a user's own as plain values: in a file of settings by name, or in a JSON file by itself.

The values are those of `AttentionSpec.to_dict`; ``like`` takes the parts that are left out from a variant.

>>> define({"taylor_4_rms": {"like": "taylor_4", "normaliser": None, "output_norm": {"kind": "rms"}}})
>>> from softmax_rnn.attention.formula import formula
>>> formula(VARIANTS["taylor_4_rms"])
'o = RMS(Σ w v),  w = Σₙ₌₀…4 (q·k/√d)ⁿ/n!'
>>> definition("softmax") is None, definition("taylor_4_rms")["output_norm"]["kind"]
(True, 'rms')
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variant_table import ADDED
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError, found_in
from softmax_rnn.validation import read_json


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
    return row.spec.to_dict() if row is not None and row.source == ADDED else None


def variant_from(text: str) -> str:
    """A variant's name as it is; a JSON file is read and gives its own name to what it describes."""
    path = Path(text)
    if path.suffix != ".json":
        return text
    values = read_json(path, "variant")
    name = re.sub(r"[^A-Za-z0-9_]+", "_", path.stem)
    with found_in(f"variant: {path}"):
        VARIANTS.add(name, spec_of(values))
    return name
