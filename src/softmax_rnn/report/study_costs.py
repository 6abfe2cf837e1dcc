"""Time and memory on a study's page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softmax_rnn.report.cells import Cell, Column, Value
from softmax_rnn.report.elements import Block, ChartBlock, Prose, Section, TableBlock
from softmax_rnn.report.plots import Axis, interval_chart
from softmax_rnn.report.study_values import Results, Row, ends, measured, place_of, places
from softmax_rnn.report.tables import records_table

CHARTED = 4
"""Relative speeds of more settings than these would be a chart of many pages; the table has them."""


def costs_section(results: Results) -> Section | None:
    """Tokens a second, beside softmax's, and bytes."""
    rows = [row for row in results.get("summary", {}).get("final", []) if row["tokens_per_second"]]
    if not rows:
        return None
    blocks: list[Block] = [
        Prose(
            "Speed of training steps as they were measured in the runs; runs side by side share the machine. Relative"
            " speeds are those of the same seed. Memory is the highest that the process of a run has taken."
            " The decoding state is what generation carries after a context in float32."
        ),
        _table(rows, results["summary"]["baseline"]),
    ]
    compared = [row for row in rows if row["speed_ratio"]]
    if compared and len(places(compared)) <= CHARTED:
        blocks.append(_chart(compared, results["summary"]["baseline"]))
    return Section("costs", "Time and memory", blocks)


def _table(rows: Sequence[Row], baseline: str) -> TableBlock:
    columns: list[str | Column] = ["variant", Column("setting", select=len(places(rows)) > 1)]
    columns += [Column("tokens/s", ",.0f"), f"× {baseline}", Column("seconds a run", ",.1f")]
    columns += ["memory", "decoding state"]
    lines: list[list[Value]] = [
        [
            row["variant"],
            place_of(row, rows),
            row["tokens_per_second"]["mean"],
            measured(row["speed_ratio"], 2),
            row["seconds"],
            size_cell(row["memory_bytes"]),
            size_cell(row["state_bytes"]),
        ]
        for row in rows
    ]
    return TableBlock("costs-table", columns, lines, "Time and memory of each variant.", filterable=True)


def _chart(rows: Sequence[Row], baseline: str) -> ChartBlock:
    records: list[dict[str, Any]] = [
        {"variant": row["variant"], "setting": place_of(row, rows), "speed": row["speed_ratio"]["mean"]}
        | ends(row["speed_ratio"], lowest=0.0)
        for row in sorted(rows, key=lambda row: -row["speed_ratio"]["mean"])
    ]
    fast, slow = records[0], records[-1]
    return ChartBlock(
        "speeds",
        interval_chart(
            records,
            name="variant",
            value=Axis("speed", f"training speed ÷ {baseline}'s"),
            low="low",
            high="high",
            series="setting" if len(places(rows)) > 1 else None,
            reference=1.0,
        ),
        alt=f"Training speed of each variant relative to {baseline}: from {slow['speed']:.2f} for {slow['variant']} to"
        f" {fast['speed']:.2f} for {fast['variant']}.",
        caption=f"Tokens a second, relative to {baseline}; right of the dashed line is faster.",
        table=records_table("speeds-data", records, ["variant", "setting", "speed", "low", "high"], "Relative speeds."),
    )


def size_cell(size: float | None) -> Cell | None:
    """Bytes in a unit that reads well.

    >>> size_cell(1536).text, size_cell(2_500_000_000).text
    ('1.5 kB', '2.5 GB')
    """
    if size is None:
        return None
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return Cell(f"{size / scale:.{1 if size < 100 * scale else 0}f} {unit}", size)
    return Cell(f"{size:.0f} B", size)
