"""Settings that users write: read from files, set by name, checked; the first fault in one line."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from softmax_rnn.errors import InputError, shown, unknown_name
from softmax_rnn.parsing import parse_json, parse_yaml

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound="BaseModel")
_QUOTE = "'"


def checked(model: type[M], values: Mapping[str, Any], what: str = "setting") -> M:
    """The settings as an object; unknown names are refused with the nearest one, and so is the first bad value.

    >>> from pydantic import BaseModel
    >>> class Sizes(BaseModel, extra="forbid"):
    ...     width: int = 8
    >>> checked(Sizes, {"widht": 9})
    Traceback (most recent call last):
    softmax_rnn.errors.UnknownNameError: unknown setting 'widht'; did you mean 'width'?
    >>> checked(Sizes, {"width": "wide"})
    Traceback (most recent call last):
    softmax_rnn.errors.InputError: width: expected a valid integer, got 'wide'
    """
    from pydantic import ValidationError

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
    where = ".".join(str(part) for part in fault["loc"] if part != "[key]")
    prefix = f"{where}: " if where else ""
    facts = fault.get("ctx", {})
    came = shown(fault["input"])
    match fault["type"]:
        case "value_error":
            return f"{prefix}{facts['error']}"
        case "missing":
            return f"{where} is missing"
        case "union_tag_not_found":
            return f"{prefix}its {facts['discriminator'].strip(_QUOTE)} is missing"
        case "union_tag_invalid":
            names = re.findall(r"'(\w+)'", facts["expected_tags"])
            return f"{prefix}{unknown_name(facts['discriminator'].strip(_QUOTE), facts['tag'], names)}"
        case "too_short":
            return f"{prefix}expected at least {facts['min_length']} entry, got {came}"
        case "tuple_type" | "list_type":
            return f"{prefix}expected a list, got {came}"
    return f"{prefix}expected {expectation(fault['msg'])}, got {came}"


def expectation(message: str) -> str:
    """What pydantic asks for.

    >>> expectation("Input should be a valid integer, unable to parse string as an integer")
    'a valid integer'
    >>> expectation("Input should be greater than 0")
    'a number greater than 0'
    """
    if message.endswith("exceeded maximum size"):
        return "a whole number of at most 64 bits"
    wanted = message.removeprefix("Input should be ").partition(", unable to ")[0]
    return f"a number {wanted}" if wanted.startswith(("greater than", "less than")) else wanted


def read_settings(path: Path, what: str) -> dict[str, Any]:
    """The settings of a YAML file; ``what`` names the argument in errors."""
    values = parse_yaml(read_whole(path, what), f"{what}: {path}")
    if values is None:
        raise InputError(f"{what}: {path} is empty; expected settings by name")
    if not isinstance(values, dict):
        raise InputError(f"{what}: expected settings by name in {path}, got a {type(values).__name__}")
    return values


def read_json(path: Path, what: str) -> Any:
    """The values of a JSON file; ``what`` names the argument in errors."""
    return parse_json(read_whole(path, what), f"{what}: {path}")


def read_whole(path: Path, what: str) -> str:
    """The text of a file; ``what`` names the argument in errors."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{what}: {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{what}: {path} is not text in UTF-8: {error.reason} at byte {error.start}") from error


def is_integer(value: object) -> bool:
    """Whether this is a whole number; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether this is a finite number; True and False are not.

    >>> is_number(0.5), is_number(True), is_number(float("nan")), is_number("1")
    (True, False, False, False)
    """
    return is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def check_output(path: Path, *, folder: bool, what: str = "output", ours: Callable[[Path], bool] | None = None) -> None:
    """Refuse a place that cannot be written before any work is done. Nothing is made.

    What is there is replaced only if ``ours`` recognises it as something that this command wrote.

    >>> check_output(Path(__file__), folder=True)    # doctest: +ELLIPSIS
    Traceback (most recent call last):
    softmax_rnn.errors.InputError: output: expected a folder, got the file ...
    >>> check_output(Path(__file__), folder=False, ours=lambda path: path.suffix == ".json")    # doctest: +ELLIPSIS
    Traceback (most recent call last):
    softmax_rnn.errors.InputError: output: ... exists and was not written by this command; choose another name
    """
    kind, other = ("folder", "file") if folder else ("file", "folder")
    if path.exists() and path.is_dir() != folder:
        raise InputError(f"{what}: expected a {kind}, got the {other} {path}")
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    if there != path.absolute() and not there.is_dir():
        raise InputError(f"{what}: {path} cannot be written: {there} is a file")
    if not os.access(there, os.W_OK):
        raise InputError(f"{what}: {path} cannot be written: no permission for {there}")
    if ours is not None and path.exists() and not ours(path):
        raise InputError(f"{what}: {path} exists and was not written by this command; choose another name")


def put(settings: dict[str, Any], name: str, value: Any) -> None:
    """Set ``a.b`` inside nested settings; ``data: mqar`` is short for ``data: {source: mqar}``.

    >>> settings = {"data": "mqar"}
    >>> put(settings, "data.pairs", 8); put(settings, "data", {"length": 64}); settings
    {'data': {'source': 'mqar', 'pairs': 8, 'length': 64}}
    """
    *path, last = name.split(".")
    for part in path:
        inner: Any = settings.get(part)
        inner = {} if inner is None else inner
        inner = {"source": inner} if isinstance(inner, str) and part == "data" else inner
        if not isinstance(inner, dict):
            raise InputError(f"{name}: cannot be set, {part} is {shown(inner)}")
        settings[part] = dict(inner)
        settings = settings[part]
    before = settings.get(last)
    settings[last] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
