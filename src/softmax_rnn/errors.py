"""What a user asked for that cannot be done, in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_SHOWN = 80
"""Characters of a wrong value that a message shows."""


class InputError(ValueError):
    """An argument that cannot be used: which one, what was expected, what came."""


class RunError(RuntimeError):
    """A run that could not continue, through no fault of the arguments: a full disk, non-finite numbers."""


class UnknownNameError(InputError, KeyError):
    """A name that is in no table, with the nearest one that is."""

    def __str__(self) -> str:
        # KeyError would print the repr of the message.
        return str(self.args[0])


def unknown_name(what: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is not among the known ones.

    >>> str(unknown_name("variant", "sofmax", ["softmax", "linear_elu"]))
    "unknown variant 'sofmax'; did you mean 'softmax'?"
    """
    names = list(known)
    came = shown(name if isinstance(name, int) else str(name))
    if not names:
        return UnknownNameError(f"unknown {what} {came}; there are none")
    near = difflib.get_close_matches(came.strip("'").lower(), [n.lower() for n in names], n=1, cutoff=0.5)
    if near:
        nearest = next(n for n in names if n.lower() == near[0])
        return UnknownNameError(f"unknown {what} {came}; did you mean {nearest!r}?")
    listed = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return UnknownNameError(f"unknown {what} {came}; expected one of: {listed}")


def shown(value: object) -> str:
    """A value for a message, cut off where it is long.

    >>> shown("a" * 1000)[-3:], shown(10**5000)
    ('aa…', 'an int too large to print')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # more digits than Python prints, or nesting without end
        return f"an {type(value).__name__} too large to print"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def first_line(error: BaseException, otherwise: str | None = None) -> str:
    """The first line of what an error of another library says; its type, or another text, where it says nothing.

    >>> first_line(OSError("\\n no such file \\n see the manual")), first_line(EOFError())
    ('no such file', 'EOFError')
    """
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), otherwise or type(error).__name__)


def root_cause(error: BaseException) -> BaseException:
    """The error at the beginning of a chain of them."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@contextmanager
def found_in(place: str) -> Iterator[None]:
    """Inside, input errors begin with the place, such as a file, where the fault is.

    >>> with found_in("run.yaml"):
    ...     raise InputError("steps: expected 1 or more, got 0")
    Traceback (most recent call last):
    softmax_rnn.errors.InputError: run.yaml: steps: expected 1 or more, got 0
    """
    try:
        yield
    except InputError as error:
        raise type(error)(f"{place}: {error}") from error
