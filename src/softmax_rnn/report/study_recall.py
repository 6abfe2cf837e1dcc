"""Recall on a study's page: the accuracy of each variant by model dimension and task, and by learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softmax_rnn.report.cells import Column, Value
from softmax_rnn.report.chart_data import names
from softmax_rnn.report.elements import Block, ChartBlock, Note, Prose, Section, TableBlock
from softmax_rnn.report.plots import Axis, interval_chart, line_chart, panel_chart
from softmax_rnn.report.study_losses import ONE_SEED, curve_chart
from softmax_rnn.report.study_values import (
    Results,
    Row,
    ends,
    measured,
    place_of,
    places,
    rate_cells,
    rates_vary,
    seeds_of,
    setting_cells,
    setting_columns,
    setting_name,
    setting_text,
    summary_rows,
)
from softmax_rnn.report.tables import records_table

METRIC = "test_accuracy"
ACCURACY = Axis("accuracy", "accuracy (0 to 1)")


def recall_section(results: Results) -> Section | None:
    """Accuracy at the best learning rate, what the other rates give, and how it came about."""
    rows = summary_rows(results, "final", METRIC)
    curves = _learning_curves(results)
    if not rows:
        return Section("recall", "Recall", curves) if curves else None
    text = "The share of right answers on the test examples of a recall task: mean over seeds ± 95 % interval."
    if rates_vary(rows):
        text += " Each variant has the learning rate that suits it best; the spread over all rates stands beside it."
    blocks: list[Block] = [Prose(text)]
    if seeds_of(rows) < 2:
        blocks.append(Note(ONE_SEED, "warning"))
    blocks += [_table(rows), _accuracy_chart(rows)]
    if rates_vary(rows):
        blocks.append(_rates_chart(rows))
    return Section("recall", "Recall", [*blocks, *curves])


def _table(rows: Sequence[Row]) -> TableBlock:
    swept = rates_vary(rows)
    columns: list[str | Column] = ["variant", *setting_columns(rows), "accuracy"]
    columns += [
        "behind softmax",
        "seeds",
        *([Column("best rate", ".1e"), "accuracy over rates"] if swept else []),
        "test loss",
    ]
    lines: list[list[Value]] = []
    for row in rows:
        line: list[Value] = [row["variant"], *setting_cells(row, rows), measured(row["test_accuracy"])]
        line += [
            measured(row["gap"], sign=True),
            row["seeds"],
            *(rate_cells(row) if swept else []),
            measured(row["test_loss"]),
        ]
        lines.append(line)
    return TableBlock("recall-accuracy", columns, lines, "Accuracy in each setting.", filterable=True)


def numeric_settings(rows: Sequence[Row]) -> list[str]:
    """Settings with several values that are all numbers, those of the model first."""
    found: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row["setting"].items():
            found.setdefault(name, set()).add(value)
    numeric = [name for name, values in found.items() if len(values) > 1 and all(map(_is_number, values))]
    return sorted(numeric, key=lambda name: not name.startswith("model."))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _accuracy_chart(rows: Sequence[Row]) -> ChartBlock:
    numeric = numeric_settings(rows)
    records = []
    for row in rows:
        rest = {name: value for name, value in row["setting"].items() if name not in numeric[:1]}
        record = {"variant": row["variant"], "setting": setting_text(rest) or row["grid"]}
        record |= {setting_name(name): float(row["setting"][name]) for name in numeric[:1] if name in row["setting"]}
        found = ends(row["test_accuracy"], 0.0, 1.0)
        records.append(record | {"accuracy": found["mean"], "low": found["low"], "high": found["high"]})
    several = len(names(records, "setting")) > 1
    if numeric and all(setting_name(numeric[0]) in record for record in records):
        x = setting_name(numeric[0])
        options: dict[str, Any] = {"x": x, "y": ACCURACY, "series": "variant"}
        options |= {"low": "low", "high": "high"} if seeds_of(rows) > 1 else {}
        chart = panel_chart(records, panel="setting", **options) if several else line_chart(records, **options)
        columns, by = ["variant", "setting", x, "accuracy", "low", "high"], x
    else:
        series = "setting" if several else None
        chart = interval_chart(records, name="variant", value=ACCURACY, low="low", high="high", series=series)
        columns, by = ["variant", "setting", "accuracy", "low", "high"], "variant"
    best = max(records, key=lambda record: record["accuracy"])
    return ChartBlock(
        "recall-chart",
        chart,
        alt=f"Accuracy of each variant by {by}. The highest is {best['accuracy']:.3f}, of {best['variant']}.",
        caption=f"Accuracy by {by}, at each variant's best learning rate, with 95 % intervals over seeds.",
        table=records_table("recall-chart-data", records, columns, f"Accuracy by {by}."),
    )


def _rates_chart(rows: Sequence[Row]) -> ChartBlock:
    records = [
        {"variant": row["variant"], "setting": place_of(row, rows), "learning rate": rate["learning_rate"]}
        | {"accuracy": rate["mean"]}
        for row in rows
        for rate in sorted(row["rates"], key=lambda rate: rate["learning_rate"])
    ]
    options: dict[str, Any] = {"x": Axis("learning rate", log=True), "y": ACCURACY, "series": "variant"}
    several = len(names(records, "setting")) > 1
    chart = panel_chart(records, panel="setting", **options) if several else line_chart(records, **options)
    return ChartBlock(
        "recall-rates",
        chart,
        alt="Accuracy of each variant against the learning rate: in how wide a range of rates it learns the task.",
        caption="Accuracy against the learning rate, mean over seeds: how wide the window is.",
        table=records_table(
            "recall-rates-data", records, ["variant", "setting", "learning rate", "accuracy"], "Accuracy by rate."
        ),
    )


def _learning_curves(results: Results) -> list[Block]:
    curves = [row for row in summary_rows(results, "curves", METRIC) if row["kind"] == "accuracy"]
    groups = places(sorted(curves, key=lambda row: row["state"] != "finished"))
    records = [
        {"line": row["line"], "setting": place, "step": row["step"], "accuracy": found["mean"]}
        | {"low": found["low"], "high": found["high"]}
        for place, group in groups.items()
        for row in group
        for found in [ends(row, 0.0, 1.0)]
    ]
    if len({record["step"] for record in records}) < 2:
        return []
    panel = "setting" if len(groups) > 1 else None
    return [curve_chart("recall", records, "Accuracy while training", "step", panel, ACCURACY)]
