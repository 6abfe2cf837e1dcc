"""The losses of a study's page: where each variant ended, its gap to softmax, its curves, and the loss by position.

Losses are shown in nats, curves as ln of the cross entropy, which is what the paper plots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from softmax_rnn.report.cells import Column, Value
from softmax_rnn.report.elements import Block, ChartBlock, Note, Prose, Section, Subheading, TableBlock
from softmax_rnn.report.plots import Axis, interval_chart, line_chart, panel_chart
from softmax_rnn.report.study_values import (
    Results,
    Row,
    as_id,
    ends,
    measured,
    place_of,
    places,
    rate_cells,
    rates_vary,
    seeds_of,
    setting_cells,
    setting_columns,
    summary_rows,
)
from softmax_rnn.report.tables import records_table

ONE_SEED = "One seed each: there are no intervals, and nothing is claimed from these numbers."
LARGE_CHARTS = 4
"""More settings than these are drawn as small panels of one chart, without zoom."""
NEAR, LARGE_GAP = 5, 0.1
"""Where a gap is larger than 0.1, those below a fifth of the largest are also drawn on a scale of their own."""
LOG_LOSS = Axis("log-loss", "log-loss, ln(cross entropy)")
TITLES = {"step": "training step", "position": "position in the context, tokens"}


def losses_section(results: Results) -> Section | None:
    """The table of final losses, and the gaps to softmax as dots with intervals."""
    settings = places(summary_rows(results, "final", "test_loss")).values()
    rows = [row for group in settings for row in sorted(group, key=lambda row: row["test_loss"]["mean"])]
    if not rows:
        return None
    baseline = results["summary"]["baseline"]
    blocks: list[Block] = [
        Prose(
            f"Cross entropy on the test split at the end of training, in nats a token: mean over seeds ± 95 % interval"
            f" (Student's t). The gap is that to {baseline}, seed by seed, as runs of a seed see the same data in the"
            f" same order; positive is worse."
        )
    ]
    if seeds_of(rows) < 2:
        blocks.append(Note(ONE_SEED, "warning"))
    blocks.append(_losses_table(rows, baseline))
    gaps = _by_gap([row for row in rows if row["gap"]])
    if gaps:
        blocks.append(_gap_chart("gaps", gaps, baseline))
    near = near_gaps(gaps)
    if near:
        blocks.append(_gap_chart("gaps-near", near, baseline, f", those that are near {baseline} drawn larger"))
    return Section("losses", "Final losses", blocks)


def _losses_table(rows: Sequence[Row], baseline: str) -> TableBlock:
    swept = rates_vary(rows)
    columns: list[str | Column] = ["variant", *setting_columns(rows), "test loss", f"gap to {baseline}", "seeds"]
    columns += ["train loss", Column("accuracy", ".3f")]
    columns += [Column("best rate", ".1e"), "loss over rates"] if swept else []
    columns += [Column("parameters", ",")]
    lines: list[list[Value]] = []
    for row in rows:
        accuracy = row["test_accuracy"] and row["test_accuracy"]["mean"]
        line: list[Value] = [row["variant"], *setting_cells(row, rows), measured(row["test_loss"])]
        line += [measured(row["gap"], 4, sign=True), row["seeds"], measured(row["train_loss"]), accuracy]
        line += rate_cells(row) if swept else []
        lines.append([*line, row["parameters"]])
    return TableBlock("final-losses", columns, lines, "Final losses, lowest first in each setting.", filterable=True)


def _by_gap(rows: Sequence[Row]) -> list[Row]:
    """Variants in the order of their smallest gap; each one's settings stay together."""
    smallest: dict[str, float] = {}
    for row in rows:
        smallest[row["variant"]] = min(smallest.get(row["variant"], math.inf), row["gap"]["mean"])
    return sorted(rows, key=lambda row: (smallest[row["variant"]], row["variant"]))


def near_gaps(rows: Sequence[Row]) -> list[Row]:
    """The rows of variants that a scale for all would show as one place; none where all are alike."""
    largest: dict[str, float] = {}
    for row in rows:
        largest[row["variant"]] = max(largest.get(row["variant"], 0.0), abs(row["gap"]["mean"]))
    limit = max(largest.values(), default=0.0)
    near = {variant for variant, gap in largest.items() if gap < limit / NEAR} if limit > LARGE_GAP else set()
    return [row for row in rows if row["variant"] in near]


def _gap_chart(name: str, rows: Sequence[Row], baseline: str, more: str = "") -> ChartBlock:
    records = [
        {"variant": row["variant"], "setting": place_of(row, rows), "gap": row["gap"]["mean"], **ends(row["gap"])}
        for row in rows
    ]
    several = len(places(rows)) > 1
    chart = interval_chart(
        records,
        name="variant",
        value=Axis("gap", f"test loss − {baseline}'s, nats"),
        low="low",
        high="high",
        series="setting" if several else None,
        reference=0.0,
    )
    best, worst = (pick(records, key=lambda record: record["gap"]) for pick in (min, max))
    return ChartBlock(
        name,
        chart,
        alt=f"Gap of each variant's test loss to {baseline}, with intervals: from {best['gap']:+.3f} for"
        f" {best['variant']} to {worst['gap']:+.3f} for {worst['variant']}.",
        caption=f"Gap to {baseline} with its 95 % interval over seeds{more}; the dashed line is {baseline} itself.",
        table=records_table(f"{name}-data", records, ["variant", "setting", "gap", "low", "high"], "Gaps in nats."),
    )


def curves_section(results: Results) -> Section | None:
    """Test and training losses against the step."""
    rows = [row for row in summary_rows(results, "curves", "test_loss") if row["kind"] != "accuracy"]
    # Lines of runs that are not finished come last, so that a variant has the same colour in every chart.
    rows.sort(key=lambda row: row["state"] != "finished")
    if not rows:
        return None
    bands = any(row["low"] is not None for row in rows)
    text = "The logarithm of the cross entropy, as in the paper, at each variant's best learning rate. A point of a"
    text += " training curve is the mean over a part of the run."
    text += " Bands are 95 % intervals over seeds." if bands else f" {ONE_SEED}"
    blocks: list[Block] = [Prose(text)]
    blocks += _chart_blocks(rows, "test", "Test loss", "step") + _chart_blocks(rows, "train", "Training loss", "step")
    return Section("curves", "Loss curves", blocks)


def positions_section(results: Results) -> Section | None:
    """The test loss against the position in the context: what more context gives."""
    rows = summary_rows(results, "positions", "test_loss")
    if len({row["position"] for row in rows}) < 2:
        return None
    rows = [{**row, "line": row["variant"], "kind": "position"} for row in rows]
    text = "The test loss at the end of training against the position in the context. A curve that goes on falling"
    blocks: list[Block] = [Prose(f"{text} says that the variant makes use of what lies far back.")]
    blocks += _chart_blocks(rows, "position", "Test loss by position", "position")
    return Section("positions", "Loss by position", blocks)


def _chart_blocks(rows: Sequence[Row], kind: str, title: str, x: str) -> list[Block]:
    """One large chart a setting, or small panels where there are many settings."""
    groups = places([row for row in rows if row["kind"] == kind])
    if len(groups) > LARGE_CHARTS:
        records = [_record(row, x) | {"setting": place} for place, group in groups.items() for row in group]
        return [curve_chart(kind, records, title, x, panel="setting")]
    blocks: list[Block] = []
    taken: list[str] = []
    for place, group in groups.items():
        name = as_id(f"{kind} {place}", taken)
        taken.append(name)
        heading = f"{title}: {place}" if len(groups) > 1 else title
        blocks += [Subheading(heading), curve_chart(name, [_record(row, x) for row in group], heading, x)]
    return blocks


def _record(row: Row, x: str) -> dict[str, Any]:
    found = ends(row)
    return {"line": row["line"], x: row[x], "log-loss": found["mean"], "low": found["low"], "high": found["high"]}


def curve_chart(
    name: str, records: Sequence[dict[str, Any]], title: str, x: str, panel: str | None = None, y: Axis = LOG_LOSS
) -> ChartBlock:
    """Lines with bands where seeds give one; in panels if wanted."""
    options: dict[str, Any] = {"x": Axis(x, TITLES[x]), "y": y, "series": "line"}
    if any(record["low"] != record["high"] for record in records):
        options |= {"low": "low", "high": "high"}
    chart = panel_chart(records, panel=panel, **options) if panel else line_chart(records, **options)
    last = {record["line"]: record[y.column] for record in records}
    whose = f" of {next(iter(last))}" if len(last) == 1 else ""
    lines = ", ".join(f"{line} {value:.3f}" for line, value in list(last.items())[:12])
    columns = [*([panel] if panel else []), "line", x, y.column, "low", "high"]
    return ChartBlock(
        f"curve-{name}",
        chart,
        alt=f"{title} against the {x}, one line a variant. At the end: {lines}.",
        caption=f"{title}{whose}: {y.title} against the {x}.",
        table=records_table(f"curve-{name}-data", list(records), columns, f"{title}."),
    )
