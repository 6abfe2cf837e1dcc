"""Rows of a study's summary as cells, and their settings as words.

>>> measured({"mean": 1.8181, "half": 0.0123, "n": 3}).text, measured({"mean": -0.0301, "half": None}, sign=True).text
('1.818 ± 0.012', '−0.030')
>>> setting_text({"data": "kjv", "model.hidden_size": "64"})
'kjv, hidden size 64'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from softmax_rnn.report.cells import Cell, Column, Value
from softmax_rnn.report.data_blocks import ColumnOf, Row

Results = Mapping[str, Any]


def measured(value: Row | None, digits: int = 3, *, sign: bool = False) -> Cell | None:
    """A mean over seeds with half its interval, where more than one seed gives one."""
    if value is None:
        return None
    text = f"{value['mean']:{'+' if sign else ''}z.{digits}f}"
    if value["half"] is not None:
        text += f" ± {value['half']:.{digits}f}"
    return Cell(text.replace("-", "−"), value["mean"], value["half"])


def ends(name: str, value: Row, lowest: float = float("-inf"), highest: float = float("inf")) -> dict[str, float]:
    """Mean under its name, low and high for a chart; one seed is a point. A share keeps within its limits."""
    low, high = (value["mean"] if value[end] is None else value[end] for end in ("low", "high"))
    return {name: value["mean"], "low": max(low, lowest), "high": min(high, highest)}


def setting_text(setting: Mapping[str, str]) -> str:
    """What a setting is called: data by their name, anything else with the name of what varies."""
    return ", ".join(value if name == "data" else f"{setting_name(name)} {value}" for name, value in setting.items())


def setting_name(name: str) -> str:
    """``model.hidden_size`` in words."""
    return name.rsplit(".", 1)[-1].replace("_", " ")


def places(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows by the text of their setting, in the order in which they come."""
    grids: dict[str, set[str]] = {}
    for row in rows:
        grids.setdefault(setting_text(row["setting"]), set()).add(row["grid"])
    groups: dict[str, list[Row]] = {}
    for row in rows:
        text = setting_text(row["setting"])
        needs_grid = len(grids[text]) > 1 or not text
        groups.setdefault(", ".join(filter(None, [row["grid"] if needs_grid else "", text])), []).append(row)
    return groups


def placed(rows: Sequence[Row]) -> list[tuple[str, Row]]:
    """Every row with the text of its setting, in the order of the settings."""
    return [(place, row) for place, group in places(rows).items() for row in group]


def place_columns(rows: Sequence[Row]) -> list[ColumnOf]:
    """Variant, the grid where there are several, and each setting that occurs, to choose from."""

    def column(name: str) -> ColumnOf:
        return Column(setting_name(name), select=True), lambda row: _number_or_text(row["setting"].get(name))

    several = len({row["grid"] for row in rows}) > 1
    grid: list[ColumnOf] = [(Column("grid", select=True), "grid")] if several else []
    settings = dict.fromkeys(name for row in rows for name in row["setting"])
    return [("variant", "variant"), *grid, *map(column, settings)]


def rate_columns(rows: Sequence[Row]) -> list[ColumnOf]:
    """Where learning rates vary: the best one, and the range of the means over all of them."""
    if not rates_vary(rows):
        return []
    means = lambda row: [rate["mean"] for rate in row["rates"]]  # noqa: E731
    return [
        (Column("best rate", ".1e"), lambda row: row["rates"][0]["learning_rate"]),
        (Column("lowest over rates", ".3f"), lambda row: min(means(row))),
        (Column("highest over rates", ".3f"), lambda row: max(means(row))),
    ]


def _number_or_text(text: str | None) -> Value:
    try:
        return None if text is None else Cell(text, float(text))
    except ValueError:
        return text


def summary_rows(results: Results, part: str, metric: str) -> list[Row]:
    """Rows of a part of the summary, of the grids that are ranked by this metric."""
    return [row for row in results.get("summary", {}).get(part, []) if row["metric"] == metric]


def seeds_of(rows: Sequence[Row]) -> int:
    """The most seeds that a variant has."""
    return max((row["seeds"] for row in rows), default=0)


def rates_vary(rows: Sequence[Row]) -> bool:
    """Whether some variant ran with several learning rates."""
    return any(len(row["rates"]) > 1 for row in rows)
