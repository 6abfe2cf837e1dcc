"""Settings that users write, checked: the first fault in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

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
