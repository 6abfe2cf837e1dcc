"""The two blocks that every section of numbers is made of: a chart with its data, and a table of rows.

>>> losses = [{"variant": "softmax", "loss": 1.8}, {"variant": "linear_elu", "loss": 2.4}]
>>> data_chart("losses", losses, value=Axis("loss"), series="variant", caption="Losses.").table.id
'losses-data'
>>> rows_table("t", losses, [("name", "variant"), ("loss × 10", lambda row: 10 * row["loss"])], "Losses.").rows[0]
['softmax', 18.0]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from softmax_rnn.report.cells import Column, Value
from softmax_rnn.report.chart_data import names
from softmax_rnn.report.elements import ChartBlock, TableBlock
from softmax_rnn.report.plots import Axis, interval_chart, line_chart, panel_chart
from softmax_rnn.report.tables import records_table

Row = Mapping[str, Any]
ColumnOf = tuple[str | Column, str | Callable[[Row], Value]]
"""A column, and what it holds: the row's value of a key, or of a function."""
SHORT = 8
"""Tables of more rows have a field to filter them by."""


def data_chart(
    id: str,
    records: Sequence[dict[str, Any]],
    *,
    value: Axis,
    series: str,
    by: str | Axis | None = None,
    panel: str | None = None,
    reference: float | None = None,
    caption: str,
    alt: str = "",
    panels: Mapping[str, Any] = MappingProxyType({}),
) -> ChartBlock:
    """Lines of ``value`` against ``by``, one per series, in panels where ``panel`` has several values; the data below.

    Without ``by``, dots: a line of the chart per series, the values of ``panel`` below each other. Where the records
    have different ``low`` and ``high``, there are bands and bars. ``alt`` is what is read out, the caption by default.
    ``panels`` has options of :func:`panel_chart`.
    """
    several = panel is not None and len(names(records, panel)) > 1
    have_ends = any(record.get("low") != record.get("high") for record in records)
    ends: dict[str, Any] = {"low": "low", "high": "high"} if have_ends else {}
    if by is None:
        below = panel if several else None
        chart = interval_chart(records, name=series, value=value, series=below, reference=reference, **ends)
    elif several:
        chart = panel_chart(records, x=by, y=value, series=series, panel=panel or "", **ends, **panels)
    else:
        chart = line_chart(records, x=by, y=value, series=series, **ends)
    return ChartBlock(id, chart, alt or caption, caption, records_table(f"{id}-data", records, caption))


def rows_table(id: str, rows: Sequence[Row], columns: Sequence[ColumnOf], caption: str) -> TableBlock:
    """A line per row, with the columns in this order."""
    lines = [[row.get(of) if isinstance(of, str) else of(row) for _, of in columns] for row in rows]
    return TableBlock(id, [column for column, _ in columns], lines, caption, filterable=len(rows) > SHORT)
