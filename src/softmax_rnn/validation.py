"""Settings that users write: read from files, set by name, checked; the first fault in one line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from softmax_rnn.errors import InputError, unknown_name

M = TypeVar("M", bound=BaseModel)


def checked(model: type[M], values: Mapping[str, Any], what: str = "setting") -> M:
    """The settings as an object; unknown names are refused with the nearest one, and so is the first bad value.

    >>> class Sizes(BaseModel, extra="forbid"):
    ...     width: int = 8
    >>> checked(Sizes, {"widht": 9})
    Traceback (most recent call last):
    softmax_rnn.errors.UnknownNameError: unknown setting 'widht'; did you mean 'width'?
    >>> checked(Sizes, {"width": "wide"})
    Traceback (most recent call last):
    softmax_rnn.errors.InputError: width: expected a valid integer, got 'wide'
    """
    for name in values:
        if name not in model.model_fields:
            raise unknown_name(what, name, model.model_fields)
    try:
        return model(**values)
    except ValidationError as error:
        raise InputError(first_fault(error)) from None


def first_fault(error: ValidationError) -> str:
    """What is wrong first: where, what was expected, what came."""
    fault = error.errors()[0]
    if raised := fault.get("ctx", {}).get("error"):
        return str(raised)
    where = ".".join(map(str, fault["loc"]))
    expected = fault["msg"].removeprefix("Input should be ").split(", unable to parse")[0]
    return f"{where}: expected {expected}, got {fault['input']!r}"


def read_settings(path: Path, what: str) -> dict[str, Any]:
    """The settings of a YAML file; ``what`` names the argument in errors."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{what}: {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{what}: {path} is no YAML file: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise InputError(f"{what}: expected settings by name in {path}, got {type(values).__name__}")
    return values


def read_json(path: Path, what: str) -> Any:
    """The values of a JSON file; ``what`` names the argument in errors."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{what}: {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{what}: {path} is no JSON file: {' '.join(str(error).split())}") from error


def put(settings: dict[str, Any], name: str, value: Any) -> None:
    """Set ``a.b`` inside nested settings; ``data: mqar`` is short for ``data: {source: mqar}``.

    >>> settings = {"data": "mqar"}
    >>> put(settings, "data.pairs", 8); put(settings, "data", {"length": 64}); settings
    {'data': {'source': 'mqar', 'pairs': 8, 'length': 64}}
    """
    *path, last = name.split(".")
    for part in path:
        inner: Any = settings.get(part) or {}
        inner = {"source": inner} if isinstance(inner, str) and part == "data" else inner
        if not isinstance(inner, dict):
            raise InputError(f"{name}: cannot be set, {part} is {inner!r}")
        settings[part] = dict(inner)
        settings = settings[part]
    before = settings.get(last)
    settings[last] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
