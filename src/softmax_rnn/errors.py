"""What a user did that cannot be done, said in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class InputError(ValueError):
    """An argument that cannot be used: which one, what was expected, what came."""


class RunError(RuntimeError):
    """A run that could not go on, through no fault of the arguments: a full disk, numbers that are no longer finite."""


class UnknownNameError(InputError, KeyError):
    """A name that stands in no table, with the nearest one that does."""

    def __str__(self) -> str:
        # KeyError would print the repr of the message.
        return str(self.args[0])


def unknown_name(what: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is not among the known ones.

    >>> str(unknown_name("variant", "sofmax", ["softmax", "linear_elu"]))
    "unknown variant 'sofmax'; did you mean 'softmax'?"
    """
    names = list(known)
    if not names:
        return UnknownNameError(f"unknown {what} {str(name)!r}; there are none")
    near = difflib.get_close_matches(str(name).lower(), [n.lower() for n in names], n=1, cutoff=0.5)
    if near:
        nearest = next(n for n in names if n.lower() == near[0])
        return UnknownNameError(f"unknown {what} {str(name)!r}; did you mean {nearest!r}?")
    listed = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return UnknownNameError(f"unknown {what} {str(name)!r}; expected one of: {listed}")


@contextmanager
def found_in(place: str) -> Iterator[None]:
    """Inside, errors of input begin with the place, such as a file, where the fault stands.

    >>> with found_in("run.yaml"):
    ...     raise InputError("steps: expected 1 or more, got 0")
    Traceback (most recent call last):
    softmax_rnn.errors.InputError: run.yaml: steps: expected 1 or more, got 0
    """
    try:
        yield
    except InputError as error:
        raise type(error)(f"{place}: {error}") from error
