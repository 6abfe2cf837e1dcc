"""Records for a chart: under the chart's names of columns, with numbers that it can draw.

Whoever named a column or a series may have used dots, brackets, quotes and markup, which mean something to Vega-Lite in
the name of a field. Here they stay values and titles.

>>> values([{"loss [nats]": 0.0, "run.name": "a"}], {"y": Axis("loss [nats]", log=True)}, {"series": "run.name"})
[{'y': None, 'series': 'a'}]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from softmax_rnn.errors import InputError, unknown_name

Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Axis:
    """A column of numbers, the title it is shown with, and whether its scale is logarithmic."""

    column: str
    title: str = ""
    log: bool = False

    @property
    def label(self) -> str:
        """The title in one line; the column's name if there is none."""
        return one_line(self.title or self.column)


def axis(column: str | Axis) -> Axis:
    """A bare name of a column as an axis."""
    return column if isinstance(column, Axis) else Axis(column)


def values(rows: Records, numbers: Mapping[str, Axis | None], texts: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """The rows under the chart's names; None where an axis cannot show a number. Columns that are None are left."""
    if not rows:
        raise InputError("rows of a chart: expected at least one, got none")
    return [
        {key: _number(row, one) for key, one in numbers.items() if one is not None}
        | {key: str(_get(row, column)) for key, column in texts.items() if column is not None}
        for row in rows
    ]


def names(rows: Records, column: str) -> list[str]:
    """The different values of a column, in the order in which they come."""
    return list(dict.fromkeys(str(_get(row, column)) for row in rows))


def one_line(text: str) -> str:
    """The text without line breaks."""
    return " ".join(text.split())


def _number(row: Mapping[str, Any], one: Axis) -> float | None:
    value = _get(row, one.column)
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"column {one.column!r} of a chart: expected numbers, got {value!r}") from None
    return number if math.isfinite(number) and (number > 0 or not one.log) else None


def _get(row: Mapping[str, Any], column: str) -> Any:
    if column not in row:
        raise unknown_name("column", column, map(str, row))
    return row[column]
