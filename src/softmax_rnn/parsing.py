"""JSON and YAML that users write, read strictly: a key that appears twice, a number beyond 64 bits, nesting without end
and aliases that unfold without end are refused in one line.

>>> parse_json('{"score": 1, "score": 2}', "spec")
Traceback (most recent call last):
softmax_rnn.errors.InputError: spec: the key 'score' appears twice
>>> parse_yaml("learning_rate: 1e-3", "run.yaml")
{'learning_rate': 0.001}
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from softmax_rnn.errors import InputError, shown

_MOST_NODES = 200_000
"""Of a YAML text with its aliases unfolded."""
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
"""Floats of JSON that YAML 1.1 takes for text, such as 1e-6."""


def parse_json(text: str, where: str) -> Any:
    """The value of a JSON text; ``where`` begins the errors."""
    if not isinstance(text, str):
        raise InputError(f"{where}: expected JSON as text, got {type(text).__name__}")
    try:
        return json.loads(text, object_pairs_hook=_without_repetition, parse_int=_integer)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except ValueError as error:
        raise InputError(f"{where} is not valid JSON: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise InputError(f"{where} is nested too deeply") from None


def parse_yaml(text: str, where: str) -> Any:
    """The value of a YAML text; ``where`` begins the errors."""
    import yaml

    try:
        return yaml.load(text, _loader())
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{where} is not valid YAML: {error.problem}{line}") from error
    except RecursionError:
        raise InputError(f"{where} is nested too deeply") from None
    except Exception as error:  # the constructors of tags and dates raise what they like
        raise InputError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from error


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise InputError(f"the key {shown(next(key for key in keys if keys.count(key) > 1))} appears twice")
    return values


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > 19 or not -(2**63) <= int(text) < 2**63:
        raise InputError(f"expected whole numbers of at most 64 bits, got {shown(text)}")
    return int(text)


@cache
def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """PyYAML's safe loader, which by itself lets the last of equal keys win."""

        def construct_document(self, node: Any) -> Any:
            _check_node(node, {})
            return super().construct_document(node)

        def construct_integer(self, node: Any) -> int:
            value = super().construct_yaml_int(node) if len(node.value) < 80 else 2**64
            if not -(2**63) <= value < 2**63:
                raise InputError(f"expected whole numbers of at most 64 bits, got {shown(node.value)}")
            return value

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_integer)
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
    return Loader


def _check_node(node: Any, counted: dict[int, int]) -> int:
    """Refuse repeated keys and endless aliases; returns how many nodes there are with aliases unfolded."""
    if id(node) in counted:
        return counted[id(node)]
    counted[id(node)] = _MOST_NODES  # a node inside itself has no end
    entries = node.value if isinstance(node.value, list) else []
    pairs = [entry for entry in entries if isinstance(entry, tuple)]
    seen = set()
    for key, _ in pairs:
        if isinstance(key.value, str) and (key.tag, key.value) in seen:
            raise InputError(f"the key {shown(key.value)} appears twice, again in line {key.start_mark.line + 1}")
        seen.add((key.tag, str(key.value)))
    parts = [part for pair in pairs for part in pair] or entries
    counted[id(node)] = 1 + sum(_check_node(part, counted) for part in parts)
    if counted[id(node)] > _MOST_NODES:
        raise InputError(f"expected at most {_MOST_NODES} values, aliases unfolded")
    return counted[id(node)]
