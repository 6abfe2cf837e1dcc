"""Row sums and weights that are not positive: counted and told, never hidden."""

from __future__ import annotations

import sys
import warnings
from enum import StrEnum

from jaxtyping import Bool, Float
from torch import Tensor

from softmax_rnn.attention.algebra import can_be_negative
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError


class NonPositiveWarning(UserWarning):
    """Row sums or weights that are not positive: the output of those rows is no average."""

    def __init__(self, text: str, row_sums: int = 0, negative_rows: int = 0) -> None:
        super().__init__(text)
        self.row_sums = row_sums
        self.negative_rows = negative_rows


class NonPositiveError(InputError):
    """The same, for those who asked for an error."""


class OnNonPositive(StrEnum):
    """What to do about row sums that are not positive."""

    WARN = "warn"
    ERROR = "error"


def report(
    spec: AttentionSpec,
    total: Float[Tensor, "B H T"],
    real: Bool[Tensor, "B T"] | None,
    negative_rows: int,
    wanted: OnNonPositive,
) -> None:
    """Warn, or raise, where row sums of real positions are not positive or weights were negative."""
    found = total.detach() <= 0
    if real is not None:
        found = found & real[:, None]
    bad = int(found.sum())
    if not bad and not negative_rows:
        return
    said = []
    if bad:
        why = "weights of this score can be negative" if can_be_negative(spec) else "all weights of the row are 0"
        said.append(f"{bad} of {total.numel()} row sums are not positive ({why})")
    if negative_rows:
        said.append(f"{negative_rows} of {total.numel()} rows have weights below 0")
    text = f"{' and '.join(said)}: the outputs of these rows are not averages"
    if wanted is OnNonPositive.ERROR:
        raise NonPositiveError(text)
    warnings.warn(NonPositiveWarning(text, bad, negative_rows), stacklevel=_stack_level())


def _stack_level() -> int:
    """How many calls up the user's own line is."""
    frame, level = sys._getframe(1), 1
    inside = ("softmax_rnn.attention", "functools")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(inside):
        frame, level = frame.f_back, level + 1
    return level
