"""Recall on a study's page: the accuracy of each variant by model dimension and task, by learning rate, and by step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from softmax_rnn.report.data_blocks import ColumnOf, Row, data_chart, rows_table
from softmax_rnn.report.elements import Block, ChartBlock, Prose, Section
from softmax_rnn.report.plots import Axis
from softmax_rnn.report.study_curves import STEP, curve_charts, finished_first
from softmax_rnn.report.study_final import one_seed, range_text
from softmax_rnn.report.study_rows import (
    Results,
    ends,
    measured,
    place_columns,
    placed,
    rate_columns,
    rates_vary,
    setting_name,
    setting_text,
    summary_rows,
)

ACCURACY = Axis("accuracy", "accuracy (0 to 1)")


def recall_section(results: Results) -> Section | None:
    """Accuracy on recall tasks: at the end, and while training."""
    rows = finished_first(summary_rows(results, "curves", "test_accuracy"))
    several = len({row["step"] for row in rows if row["kind"] == "accuracy"}) > 1
    blocks = _blocks(results)
    blocks += curve_charts(rows, "accuracy", "Accuracy while training", STEP, ACCURACY, large=1) if several else []
    return Section("recall", "Recall", blocks) if blocks else None


def _blocks(results: Results) -> list[Block]:
    """Accuracy at the best learning rate, and what the other rates give."""
    rows = summary_rows(results, "final", "test_accuracy")
    if not rows:
        return []
    columns: list[ColumnOf] = [
        *place_columns(rows),
        ("accuracy", lambda row: measured(row["test_accuracy"])),
        ("behind softmax", lambda row: measured(row["gap"], sign=True)),
        ("seeds", "seeds"),
        *rate_columns(rows),
        ("test loss", lambda row: measured(row["test_loss"])),
    ]
    text = "The share of right answers on the test examples of a recall task: mean over seeds ± 95 % interval."
    if rates_vary(rows):
        text += " Each variant has the learning rate that suits it best; the spread over all rates is shown beside it."
    table = rows_table("recall-accuracy", rows, columns, "Accuracy in each setting.")
    blocks: list[Block] = [Prose(text), *one_seed(rows), table, _accuracy_chart(rows)]
    return [*blocks, _rates_chart(rows)] if rates_vary(rows) else blocks


def numeric_settings(rows: Sequence[Row]) -> list[str]:
    """Settings of all rows with several values that are all numbers, those of the model first."""
    values: dict[str, list[str]] = {}
    for row in rows:
        for name, value in row["setting"].items():
            values.setdefault(name, []).append(value)
    numeric = [
        name
        for name, texts in values.items()
        if len(texts) == len(rows) and len(set(texts)) > 1 and all(re.fullmatch(r"[\d.e+-]+", text) for text in texts)
    ]
    return sorted(numeric, key=lambda name: not name.startswith("model."))


def _accuracy_chart(rows: Sequence[Row]) -> ChartBlock:
    by = next(iter(numeric_settings(rows)), None)
    records = []
    for row in rows:
        rest = {name: value for name, value in row["setting"].items() if name != by}
        record: dict[str, Any] = {"variant": row["variant"], "setting": setting_text(rest) or row["grid"]}
        record |= {setting_name(by): float(row["setting"][by])} if by else {}
        records.append(record | ends("accuracy", row["test_accuracy"], 0.0, 1.0))
    name = setting_name(by) if by else "variant"
    return data_chart(
        "recall-chart",
        records,
        value=ACCURACY,
        by=setting_name(by) if by else None,
        series="variant",
        panel="setting",
        alt=f"Accuracy of each variant by {name}: {range_text(records, 'accuracy', '.3f')}.",
        caption=f"Accuracy by {name}, at each variant's best learning rate, with 95 % intervals over seeds.",
    )


def _rates_chart(rows: Sequence[Row]) -> ChartBlock:
    records = [
        {"variant": row["variant"], "setting": place, "learning rate": rate["learning_rate"], "accuracy": rate["mean"]}
        for place, row in placed(rows)
        for rate in sorted(row["rates"], key=lambda rate: rate["learning_rate"])
    ]
    return data_chart(
        "recall-rates",
        records,
        value=ACCURACY,
        by=Axis("learning rate", log=True),
        series="variant",
        panel="setting",
        alt="Accuracy of each variant against the learning rate: in how wide a range of rates it learns the task.",
        caption="Accuracy against the learning rate, mean over seeds: how wide the window is.",
    )
