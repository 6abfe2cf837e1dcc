"""Effects of a factorial and trends against a size, on a study's page."""

from __future__ import annotations

from softmax_rnn.report.cells import Column
from softmax_rnn.report.data_blocks import ColumnOf, data_chart, rows_table
from softmax_rnn.report.elements import Prose, Section
from softmax_rnn.report.plots import Axis
from softmax_rnn.report.study_rows import Results, ends, measured, setting_name


def effects_section(results: Results) -> Section | None:
    """Main effects and interactions, with intervals."""
    rows = results.get("effects") or []
    if not rows:
        return None
    records = [{"effect": row["effect"], "kind": row["kind"], **ends("change", row)} for row in rows]
    chart = data_chart(
        "effects-chart",
        records,
        value=Axis("change", "change of the test loss, nats"),
        series="effect",
        reference=0.0,
        alt="Main effects and interactions of the parts, as changes of the test loss, with 95 % intervals over seeds.",
        caption="Effects on the test loss with 95 % intervals over seeds; left of the dashed line is better.",
    )
    text = (
        "Every combination of the parts was trained with the same seeds. A main effect is the change of the test loss"
    )
    text += (
        " against the first level of the part, averaged over all combinations of the others; an interaction says how"
    )
    text += f" much an effect changes with another part. Each is computed seed by seed, here from {rows[0]['n']} seeds."
    return Section("effects", "What each part changes", [Prose(text), chart])


def trends_section(results: Results) -> Section | None:
    """Gaps against a size with their slopes, and the lines continued to the size of the paper."""
    rows = results.get("trends") or []
    if not rows:
        return None
    columns: list[ColumnOf] = [
        ("variant", "what"),
        ("against", "than"),
        ("size", lambda row: setting_name(row["along"])),
        (Column("from", "g"), lambda row: row["points"][0]["size"]),
        (Column("to", "g"), lambda row: row["points"][-1]["size"]),
        ("change of the gap per doubling", lambda row: measured(row["slope"], 4, sign=True)),
        (Column("size in the paper", ",.0f"), "paper"),
        ("extrapolated gap there", lambda row: measured(row["prediction"], 3, sign=True)),
    ]
    records = [
        {"variant": row["what"], "size": setting_name(row["along"]), "value": point["size"], **ends("gap", point)}
        for row in rows
        for point in row["points"]
    ]
    chart = data_chart(
        "trends-chart",
        records,
        value=Axis("gap", "gap of the test loss, nats"),
        by=Axis("value", "size", log=True),
        series="variant",
        panel="size",
        alt="The gap of each variant to its reference against the size of the model or of the context.",
        caption="Gap against size with 95 % intervals over seeds.",
        panels={"same_scale": False},
    )
    text = "A line in the logarithm of the size is fitted to the gaps of each seed; intervals are those over seeds. The"
    text += " value at the size of the paper is an extrapolation far beyond what was measured: it says where the line"
    table = rows_table("trends-table", rows, columns, "Trends of the gap.")
    return Section(
        "trends", "Gap against size", [Prose(f"{text} leads, not what a model of that size does."), table, chart]
    )
