"""jaxtyping's shapes, checked at run time: what a signature says of a tensor holds in every call of every test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beartype import beartype

KINDS = ("Float[", "Int[", "Bool[", "Shaped[")


def tensors_checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the annotations that state a shape; what else callers pass is answered by the package in its words."""
    if isinstance(function, type):
        return function
    said = getattr(function, "__annotations__", {})
    shapes = {name: text for name, text in said.items() if any(kind in str(text) for kind in KINDS)}
    if not shapes:
        return function
    function.__annotations__ = shapes
    return beartype(function)
