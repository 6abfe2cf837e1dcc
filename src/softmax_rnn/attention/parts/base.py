"""What every part of an attention has in common: a name in JSON, checked fields, the tensors that it needs.

A part *declares* its tensors, and everything else reads the declaration: `attend`, `extend` and `step` check them, a
model makes them, a conversion starts them so that they change nothing, benches and tests draw them at random.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from softmax_rnn.attention.spec import AttentionSpec
    from softmax_rnn.attention.visibility import Visibility


def identity(raw: Tensor) -> Tensor:
    """The raw projection itself."""
    return raw


def sigmoid(raw: Tensor) -> Tensor:
    """σ(raw)."""
    return raw.sigmoid()


def tanh(raw: Tensor) -> Tensor:
    """tanh(raw)."""
    return raw.tanh()


First: TypeAlias = "float | Callable[[tuple[int, ...]], Tensor]"
"""A first value, or a function from the shape of a tensor to its first values."""


@dataclass(frozen=True)
class Projection:
    """A model makes the tensor as activation(W h + b), h the hidden state of the position."""

    activation: Callable[[Tensor], Tensor] = identity
    first_bias: First = 0.0
    """Where b starts in a new model."""
    neutral_bias: float = 0.0
    """b in a converted model, with W = 0: the part then changes nothing, or multiplies by one known number."""
    typical: float = 0.0
    """Benches and tests draw the raw projection around this."""
    rank: int | None = None
    """W is a product of two matrices with this many rows and columns between them; None: one matrix."""
    between: Callable[[Tensor], Tensor] = identity
    """What is applied between the two."""


@dataclass(frozen=True)
class Parameter:
    """A model learns the tensor itself."""

    first: First = 0.0
    """Its first value in a new model."""
    neutral: float | None = None
    """Its value in a converted model; None: the first value."""


@dataclass(frozen=True)
class Declaration:
    """A tensor that a part needs besides q, k and v."""

    name: str
    axes: str
    """B batch, H query heads, K key heads, T time, D key dimension, E value dimension, F features, or a number."""
    made: Projection | Parameter
    multiplies: Literal["values", "output"] | None = None
    """What the tensor multiplies: a conversion puts the inverse of its neutral value into v_proj or o_proj."""

    @property
    def time_axis(self) -> int | None:
        """Which axis runs along time."""
        axes = self.axes.split()
        return axes.index("T") if "T" in axes else None

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape for these sizes of the letters.

        >>> Declaration("gate", "B H T 3", Parameter()).shape({"B": 2, "H": 4, "T": 5})
        (2, 4, 5, 3)
        """
        return axes_shape(self.axes, sizes)


def axes_shape(axes: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The sizes of axes that are letters or numbers."""
    return tuple(int(axis) if axis.isdigit() else sizes[axis] for axis in axes.split())


@dataclass(frozen=True)
class Along:
    """What values that run along time are made of."""

    spec: AttentionSpec
    k: Tensor
    """(B, K, T, D), 0 at padding."""
    v: Tensor
    """(B, K, T, E), 0 at padding."""
    tensors: Mapping[str, Tensor]
    seen: Visibility
    """Who sees whom among these positions."""
    lengths: Tensor
    """How many keys each position sees (B, T)."""


@dataclass(frozen=True)
class Part:
    """One part of an attention. ``kind`` is its name in JSON; subclasses register themselves under it."""

    kind: ClassVar[str] = ""
    slot: ClassVar[str] = ""
    """The field of `AttentionSpec` that this part fits into."""
    registry: ClassVar[dict[str, dict[str, type[Part]]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.kind:
            Part.registry.setdefault(cls.slot, {})[cls.kind] = cls

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """The tensors that it needs besides q, k and v."""
        return ()

    @property
    def differs_by_head(self) -> bool:
        """Whether query heads that share a key head need separate states."""
        return False

    def value_factor(self, tensors: Mapping[str, Tensor], lengths: Tensor) -> Tensor | None:
        """What multiplies v_j before it enters the sum, (B, H, T); ``lengths`` (B, T) is how many keys j sees."""
        return None

    running_axes: ClassVar[str] = "H"
    """Letters of what is carried, apart from the batch."""

    def running(self, along: Along, before: Tensor | None) -> Tensor | None:
        """Values that run along time, (B, H, T) or (B, heads, T, …); the last ones are carried in the decoding state
        and come back as ``before``.
        """
        return None

    def running_start(self) -> float | None:
        """The running value before the first position; None where nothing runs."""
        return None


def check_fields(part: Part) -> None:
    """Each option has the type that the dataclass says; JSON's lists and whole numbers are converted."""
    hints = _hints(type(part))
    for field in fields(part):
        value = getattr(part, field.name)
        if field.name not in hints:
            continue
        try:
            converted = _converted(hints[field.name], value)
        except _WrongTypeError:
            expected = _in_words(hints[field.name])
            raise InputError(f"{field.name}: expected {expected}, got {_shown(value)}") from None
        object.__setattr__(part, field.name, converted)


@cache
def _hints(cls: type[Part]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except NameError:  # a class defined inside a function: its names cannot be looked up
        return {}


class _WrongTypeError(Exception):
    """The value does not have the type."""


def _converted(hint: Any, value: Any) -> Any:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        try:
            return _as(option, value)
        except _WrongTypeError:
            continue
    raise _WrongTypeError


def _as(hint: Any, value: Any) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is type(None):
        fits = value is None
    elif hint is float:
        fits = number and (isinstance(value, float) or abs(value) < 2**1000)
        value = float(value) if fits else value
    elif hint is int:
        fits = number and isinstance(value, int)
    elif hint in (bool, str):
        fits = isinstance(value, hint)
    elif typing.get_origin(hint) is tuple:
        if not isinstance(value, (list, tuple)):
            raise _WrongTypeError
        return tuple(_as(typing.get_args(hint)[0], one) for one in value)
    elif isinstance(hint, type) and issubclass(hint, Enum):
        if not any(value == one.value for one in hint):
            raise _WrongTypeError
        return hint(value)
    elif isinstance(hint, type):
        fits = isinstance(value, hint)
    else:
        fits = True
    if not fits:
        raise _WrongTypeError
    return value


def _in_words(hint: Any) -> str:
    if isinstance(hint, types.UnionType):
        return " or ".join(_in_words(option) for option in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"a list, each entry {_in_words(typing.get_args(hint)[0])}"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"one of {', '.join(one.value for one in hint)}"
    if isinstance(hint, type) and issubclass(hint, Part):
        return f"one of {', '.join(Part.registry.get(hint.slot, {}))}"
    words = {type(None): "None", float: "a number", int: "a whole number", bool: "true or false", str: "text"}
    return words.get(hint, str(hint))


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "a number that is too long to print"
    return text if len(text) <= 80 else f"{text[:80]}…"


def check_eps(eps: float) -> None:
    """An eps is 0 or more."""
    if not (math.isfinite(eps) and eps >= 0):
        raise InputError(f"eps: expected 0 or more, got {eps!r}")


def check_minimum(minimum: float | None) -> None:
    """A minimum is positive, or absent."""
    if minimum is not None and not (math.isfinite(minimum) and minimum > 0):
        raise InputError(f"minimum: expected a positive number or None, got {minimum!r}")
