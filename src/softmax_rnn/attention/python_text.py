"""A spec as the Python that makes it, to be copied: imports, and only the options that differ from their defaults.

>>> from softmax_rnn.attention.variants import VARIANTS
>>> print(python_text(VARIANTS["gated_softmax_no_gate_L2norm_nodivS_noclamp"]))
from softmax_rnn.attention.parts import L2Norm
from softmax_rnn.attention.spec import AttentionSpec
<BLANKLINE>
spec = AttentionSpec(normaliser=None, output_norm=L2Norm())
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from enum import Enum
from typing import Any

from softmax_rnn.attention import parts as parts_package
from softmax_rnn.attention.parts import Part
from softmax_rnn.attention.spec import AttentionSpec


def python_text(spec: AttentionSpec) -> str:
    """Imports and one assignment."""
    places: dict[str, set[str]] = {AttentionSpec.__module__: {AttentionSpec.__name__}}
    made = _expression(spec, places)
    imports = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(places.items())]
    return "\n".join([*imports, "", f"spec = {made}"])


def _expression(value: Any, places: dict[str, set[str]]) -> str:
    kind = type(value)
    if isinstance(value, (Part, AttentionSpec)):
        if isinstance(value, Part):
            _import(kind, places)
        options = [
            f"{one.name}={_expression(getattr(value, one.name), places)}"
            for one in fields(value)
            if one.default is MISSING or getattr(value, one.name) != one.default
        ]
        return f"{kind.__name__}({', '.join(options)})"
    if isinstance(value, Enum):
        _import(kind, places)
        return f"{kind.__name__}.{value.name}"
    return repr(value)


def _import(kind: type, places: dict[str, set[str]]) -> None:
    shown = getattr(parts_package, kind.__name__, None) is kind
    places.setdefault(parts_package.__name__ if shown else kind.__module__, set()).add(kind.__name__)
