"""Curves of a study's page: losses while training, the gap to softmax, and the loss by position.

Losses are drawn as the logarithm of the cross entropy, which is what the paper plots.

>>> as_id("Grid <1>, size"), as_id("a", ["a"])
('grid-1-size', 'a-2')
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from softmax_rnn.report.data_blocks import Row, data_chart
from softmax_rnn.report.elements import Block, Prose, Section, Subheading
from softmax_rnn.report.plots import Axis
from softmax_rnn.report.study_final import ONE_SEED
from softmax_rnn.report.study_rows import Results, ends, placed, places, summary_rows

LARGE_CHARTS = 4
"""More settings than these are drawn as small panels of one chart, without zoom."""
LOG_LOSS = Axis("log of the loss", "log of the loss, ln(cross entropy)")
SCORES = (
    ("test_largest_score", "Largest score", Axis("score", "largest |q·k|/√d of any head")),
    ("test_dominant_order", "Order of the largest term", Axis("order", "Taylor order with the largest mean term")),
    ("test_order_within", "Order for 1 %", Axis("order", "Taylor order for an error of 1 %")),
)
STEP, POSITION = Axis("step", "training step"), Axis("position", "position in the context, tokens")


def curves_section(results: Results) -> Section | None:
    """Test and training losses against the step, and the gap to softmax."""
    rows = finished_first(summary_rows(results, "curves", "test_loss"))
    if not rows:
        return None
    bands = any(row["low"] is not None for row in rows)
    text = "The logarithm of the cross entropy, as in the paper, at each variant's best learning rate. A point of a"
    text += (
        " training curve is the mean over a part of the run. The gap is the paired difference in test loss, in nats."
    )
    text += " Bands are 95 % intervals over seeds." if bands else f" {ONE_SEED}"
    baseline = results["summary"]["baseline"]
    gap = Axis("gap", f"test loss − {baseline}'s, nats")
    blocks: list[Block] = [Prose(text), *curve_charts(rows, "test", "Test loss", STEP, LOG_LOSS)]
    blocks += curve_charts(_with_zero(rows, baseline), "gap", f"Gap to {baseline} while training", STEP, gap)
    blocks += curve_charts(rows, "train", "Training loss", STEP, LOG_LOSS)
    return Section("curves", "Loss curves", blocks)


def scores_section(results: Results) -> Section | None:
    """How far the scores reach while training: the largest one, its largest Taylor term, and the order for 1 %."""
    rows = finished_first(summary_rows(results, "curves", "test_loss"))
    charts = [chart for name, title, axis in SCORES for chart in curve_charts(rows, name, title, STEP, axis)]
    if not charts:
        return None
    text = "Measured on the first 512 tokens of the test text. The order for 1 % is the lowest from which the output of"
    text += " every layer is within 1 % of softmax's on average; 150 stands for 150 or more."
    return Section("scores", "How far the scores reach", [Prose(text), *charts])


def finished_first(rows: Sequence[Row]) -> list[Row]:
    """Lines of runs that are not finished come last, so that a variant has the same colour in every chart."""
    return sorted(rows, key=lambda row: row["state"] != "finished")


def _with_zero(rows: Sequence[Row], baseline: str) -> list[Row]:
    """The rows of gaps with the baseline at 0 in each setting that has any."""
    gaps = [row for row in rows if row["kind"] == "gap"]
    zero = {"variant": baseline, "line": baseline, "mean": 0.0, "low": None, "high": None}
    level = {(place, row["step"]): {**row, **zero} for place, row in placed(gaps)}
    return [*level.values(), *gaps]


def positions_section(results: Results) -> Section | None:
    """The test loss against the position in the context: what more context gives."""
    rows = [
        {**row, "line": row["variant"], "kind": "position"} for row in summary_rows(results, "positions", "test_loss")
    ]
    if len({row["position"] for row in rows}) < 2:
        return None
    text = "The test loss at the end of training against the position in the context. A curve that keeps falling"
    text += " means that the variant uses distant context."
    charts = curve_charts(rows, "position", "Test loss by position", POSITION, LOG_LOSS)
    return Section("positions", "Loss by position", [Prose(text), *charts])


def curve_charts(
    rows: Sequence[Row], kind: str, title: str, by: Axis, value: Axis, large: int = LARGE_CHARTS
) -> list[Block]:
    """One large chart per setting, or small panels where there are many settings."""
    groups = places([row for row in rows if row["kind"] == kind])
    if len(groups) > large:
        return [_chart(kind, [one for place, group in groups.items() for one in _records(group, by, value, place)],
                       title, by, value)]  # fmt: skip
    blocks: list[Block] = []
    taken: list[str] = []
    for place, group in groups.items():
        taken.append(as_id(f"{kind} {place}", taken))
        heading = f"{title}: {place}" if len(groups) > 1 else title
        chart = _chart(taken[-1], _records(group, by, value, place), heading, by, value)
        blocks += [Subheading(heading), chart]
    return blocks


def _records(rows: Sequence[Row], by: Axis, value: Axis, place: str) -> list[dict[str, Any]]:
    limits = (0.0, 1.0) if value.column == "accuracy" else ()
    return [
        {"variant": row["variant"], "line": row["line"], "setting": place, by.column: row[by.column]}
        | ends(value.column, row, *limits)
        for row in rows
    ]


def _chart(name: str, records: Sequence[dict[str, Any]], title: str, by: Axis, value: Axis) -> Block:
    last = {record["line"]: record[value.column] for record in records}
    lines = ", ".join(f"{line} {number:.3f}" for line, number in list(last.items())[:12])
    return data_chart(
        f"curve-{name}",
        records,
        value=value,
        by=by,
        series="line",
        panel="setting",
        alt=f"{title} against the {by.column}, one line per variant. At the end: {lines}.",
        caption=f"{title}: {value.title} against the {by.column}.",
    )


def as_id(text: str, taken: Sequence[str] = ()) -> str:
    """A text as the id of a part of the page, unlike those that are taken."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60]
    plain = plain if re.match(r"[a-z]", plain) else f"x-{plain}".rstrip("-")
    number, name = 2, plain
    while name in taken:
        name, number = f"{plain}-{number}", number + 1
    return name
