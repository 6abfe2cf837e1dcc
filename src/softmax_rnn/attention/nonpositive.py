"""Row sums and weights that are not positive: counted and reported, never hidden.

On a CPU a call warns at once. On a device, and inside a compiled graph, nobody waits for the count: it stays there,
and one warning reports them all, at `warn_of_later_counts` or when the program ends.

>>> with counted() as count:                                  # one summary instead of a warning per call
...     pass
>>> count.row_sums, count.negative_rows
(0, 0)
"""

from __future__ import annotations

import atexit
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from softmax_rnn.attention.algebra import can_be_negative
from softmax_rnn.attention.host_sync import may_sync, traced
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError


class NonPositiveWarning(UserWarning):
    """Row sums or weights that are not positive: the outputs of those rows are not averages."""

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
    IGNORE = "ignore"


@dataclass
class Count:
    """How many rows of all calls inside `counted` were not positive. The numbers stay on the device until asked for."""

    _row_sums: dict[object, Tensor] = field(default_factory=dict)
    _negative_rows: dict[object, Tensor] = field(default_factory=dict)
    rows: int = 0
    """Rows that were checked."""

    def add(self, row_sums: Tensor, negative_rows: Tensor | None, rows: int) -> None:
        self.rows += rows
        for total, new in ((self._row_sums, row_sums), (self._negative_rows, negative_rows)):
            if new is not None:
                total[new.device] = total[new.device] + new if new.device in total else new

    @property
    def row_sums(self) -> int:
        """Row sums that were not positive."""
        return sum(int(x) for x in self._row_sums.values())

    @property
    def negative_rows(self) -> int:
        """Rows in which a weight was below 0."""
        return sum(int(x) for x in self._negative_rows.values())

    def __str__(self) -> str:
        return _said(self.row_sums, self.negative_rows, self.rows, "")


_COUNT: ContextVar[Count | None] = ContextVar("count", default=None)


@contextmanager
def counted() -> Iterator[Count]:
    """Inside, `attend` counts where it would warn."""
    count = Count()
    before = _COUNT.set(count)
    try:
        yield count
    finally:
        _COUNT.reset(before)


def is_counting() -> bool:
    """Whether this is inside `counted`."""
    return _COUNT.get() is not None


_LATER = Count()


def warn_of_later_counts() -> None:
    """Warn once of all rows that were counted on devices and in compiled graphs, and count from 0 again."""
    count = Count(dict(_LATER._row_sums), dict(_LATER._negative_rows), _LATER.rows)
    _LATER._row_sums.clear()
    _LATER._negative_rows.clear()
    _LATER.rows = 0
    if count.row_sums or count.negative_rows:
        warning = NonPositiveWarning(str(count), count.row_sums, count.negative_rows)
        warnings.warn(warning, stacklevel=2)


atexit.register(warn_of_later_counts)


@torch.library.custom_op(
    "softmax_rnn::count_rows",
    mutates_args=(),
    schema="(Tensor total, Tensor row_sums, Tensor? negative_rows) -> Tensor",
)
def _count_rows(total: Tensor, row_sums: Tensor, negative_rows: Tensor | None) -> Tensor:
    """A copy of the row sums; the rows are counted when the compiled graph runs."""
    count = _COUNT.get()
    (_LATER if count is None else count).add(row_sums.clone(), negative_rows, total.numel())
    return total.clone()


@_count_rows.register_fake
def _(total: Tensor, row_sums: Tensor, negative_rows: Tensor | None) -> Tensor:
    return torch.empty_like(total)


_count_rows.register_autograd(lambda ctx, grad: (grad, None, None))


def report(
    spec: AttentionSpec,
    total: Float[Tensor, "B H T"],
    real: Bool[Tensor, "B T"] | None,
    negative_rows: Tensor | None,
    wanted: OnNonPositive,
) -> Float[Tensor, "B H T"]:
    """The row sums; warn, count or raise where those of real positions are not positive or weights were negative."""
    if (
        wanted is OnNonPositive.IGNORE
        or torch.compiler.is_exporting()
        or total.is_meta
        or isinstance(total, FakeTensor)
    ):
        return total
    if negative_rows is None and real is None and may_sync(total) and _COUNT.get() is None and total.min() > 0:
        return total
    where = total.detach() <= 0
    bad = (where if real is None else where & real[:, None]).sum()
    if traced(total):
        if wanted is OnNonPositive.ERROR:
            torch._assert_async(bad == 0, "row sums are not positive")  # pyright: ignore[reportPrivateImportUsage]
            return total
        return _count_rows(total, bad, negative_rows)
    count = _COUNT.get()
    if count is None and not may_sync(total):
        count = _LATER
    if count is not None and wanted is OnNonPositive.WARN:
        count.add(bad, negative_rows, total.numel())
        return total
    row_sums, below = int(bad), 0 if negative_rows is None else int(negative_rows)
    if not row_sums and not below:
        return total
    why = "weights of this score can be negative" if can_be_negative(spec) else "all weights of the row are 0"
    text = _said(row_sums, below, total.numel(), f" ({why})")
    if wanted is OnNonPositive.ERROR:
        raise NonPositiveError(text)
    warnings.warn(NonPositiveWarning(text, row_sums, below), stacklevel=_stack_level())
    return total


def _said(row_sums: int, negative_rows: int, rows: int, why: str) -> str:
    said = []
    if row_sums:
        said.append(f"{row_sums:,} of {rows:,} row sums are not positive{why}")
    if negative_rows:
        said.append(f"{negative_rows:,} of {rows:,} rows have weights below 0")
    return f"{' and '.join(said)}: the outputs of these rows are not averages" if said else "all row sums are positive"


def _stack_level() -> int:
    """How many calls up the user's own line is."""
    frame, level = sys._getframe(1), 1
    inside = ("softmax_rnn.attention", "functools")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(inside):
        frame, level = frame.f_back, level + 1
    return level
