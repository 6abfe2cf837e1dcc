"""Numbers of a study's results as cells, and settings as words.

>>> measured({"mean": 1.8181, "half": 0.0123, "n": 3}), measured({"mean": -0.0301, "half": None, "n": 1}, sign=True)
(Cell(text='1.818 ± 0.012', value=1.8181), Cell(text='−0.030', value=-0.0301))
>>> setting_text({"data": "kjv", "model.hidden_size": "64"})
'kjv, hidden size 64'
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from softmax_rnn.report.cells import Cell, Column, Value

Results = Mapping[str, Any]
Row = Mapping[str, Any]


def measured(value: Row | None, digits: int = 3, *, sign: bool = False) -> Cell | None:
    """A mean over seeds with half its interval, where more than one seed gives one."""
    if value is None:
        return None
    text = f"{value['mean']:{'+' if sign else ''}z.{digits}f}"
    if value["half"] is not None:
        text += f" ± {value['half']:.{digits}f}"
    return Cell(text.replace("-", "−"), value["mean"])


def ends(value: Row, lowest: float | None = None, highest: float | None = None) -> dict[str, float]:
    """Mean, low and high for a chart; one seed is a point. A share keeps to the numbers that it can take."""
    mean = value["mean"]
    low = mean if value["low"] is None else value["low"]
    high = mean if value["high"] is None else value["high"]
    low = low if lowest is None else max(low, lowest)
    return {"mean": mean, "low": low, "high": high if highest is None else min(high, highest)}


def setting_text(setting: Mapping[str, str]) -> str:
    """What a setting is called: data by their name, anything else with the name of what varies."""
    words = [value if name == "data" else f"{setting_name(name)} {value}" for name, value in setting.items()]
    return ", ".join(words)


def setting_name(name: str) -> str:
    """``model.hidden_size`` in words."""
    return name.rsplit(".", 1)[-1].replace("_", " ")


def place_of(row: Row, rows: Sequence[Row]) -> str:
    """The setting of a row, with its grid where another grid has the same setting."""
    return _place(row, _grids(rows))


def places(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows by the text of their setting, in the order in which they come."""
    grids = _grids(rows)
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_place(row, grids), []).append(row)
    return groups


def _grids(rows: Sequence[Row]) -> dict[str, set[str]]:
    """The grids in which each setting occurs."""
    grids: dict[str, set[str]] = {}
    for row in rows:
        grids.setdefault(setting_text(row["setting"]), set()).add(row["grid"])
    return grids


def _place(row: Row, grids: Mapping[str, set[str]]) -> str:
    text = setting_text(row["setting"])
    return ", ".join(filter(None, [row["grid"] if len(grids[text]) > 1 or not text else "", text]))


def setting_columns(rows: Sequence[Row]) -> list[Column]:
    """A column for the grid, where there are several, and for each setting that occurs, to choose from."""
    grids = [Column("grid", select=True)] if len({row["grid"] for row in rows}) > 1 else []
    return [*grids, *(Column(setting_name(name), select=True) for name in _settings(rows))]


def setting_cells(row: Row, rows: Sequence[Row]) -> list[Value]:
    """The cells of these columns, numbers as numbers."""
    grids: list[Value] = [row["grid"]] if len({one["grid"] for one in rows}) > 1 else []
    return [*grids, *(_number_or_text(row["setting"].get(name)) for name in _settings(rows))]


def _settings(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row["setting"]))


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


def rate_cells(row: Row) -> list[Value]:
    """The best learning rate, and the range of the means over all of them."""
    means = [rate["mean"] for rate in row["rates"]]
    spread = f"{min(means):.3f} … {max(means):.3f}"
    return [row["rates"][0]["learning_rate"], Cell(spread, max(means) - min(means))]


def as_id(text: str, taken: Sequence[str] = ()) -> str:
    """A text as the id of a part of the page, unlike those that are taken.

    >>> as_id("Grid <1>, size"), as_id("a", ["a"])
    ('grid-1-size', 'a-2')
    """
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60]
    plain = plain if re.match(r"[a-z]", plain) else f"x-{plain}".rstrip("-")
    number, name = 2, plain
    while name in taken:
        name, number = f"{plain}-{number}", number + 1
    return name
