"""Where the runs of a study ended: losses and gaps to softmax, the order of a polynomial, recall, time and memory.

>>> family_of("taylor_4"), family_of("elu_power_2"), family_of("linear_elu"), family_of("softmax")
(('taylor_n', 4), ('elu_power_n', 2), ('elu_power_n', 1), None)
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from softmax_rnn.report.cells import Cell, Column
from softmax_rnn.report.data_blocks import ColumnOf, Row, data_chart, rows_table
from softmax_rnn.report.elements import Block, ChartBlock, Note, Prose, Section
from softmax_rnn.report.plots import Axis
from softmax_rnn.report.study_rows import (
    Results,
    ends,
    measured,
    place_columns,
    placed,
    places,
    rate_columns,
    seeds_of,
    summary_rows,
)

ONE_SEED = "One seed each: there are no intervals, and nothing is claimed from these numbers."
NEAR, LARGE_GAP = 5, 0.1
"""Where a gap is larger than 0.1, those below a fifth of the largest are also drawn on a larger scale."""
CHARTED = 4
"""Relative speeds of more settings than these would be a chart of many pages; the table has them."""
# The name of a linear attention says its feature map; it is the first power on it.
LINEAR = re.compile(r"linear_(elu|relu|cosine)")
FAMILY = re.compile(r"(.*(?:taylor|power|sata))_(\d+)")


def losses_section(results: Results) -> Section | None:
    """The table of final losses, and the gaps to softmax as dots with intervals."""
    settings = places(summary_rows(results, "final", "test_loss")).values()
    rows = [row for group in settings for row in sorted(group, key=lambda row: row["test_loss"]["mean"])]
    if not rows:
        return None
    baseline = results["summary"]["baseline"]
    columns: list[ColumnOf] = [
        *place_columns(rows),
        ("test loss", lambda row: measured(row["test_loss"])),
        (f"gap to {baseline}", lambda row: measured(row["gap"], 4, sign=True)),
        ("seeds", "seeds"),
        ("train loss", lambda row: measured(row["train_loss"])),
        (Column("accuracy", ".3f"), lambda row: row["test_accuracy"] and row["test_accuracy"]["mean"]),
        *rate_columns(rows),
        (Column("parameters", ","), "parameters"),
    ]
    text = "Cross entropy on the test split at the end of training, in nats per token: mean over seeds ± 95 % interval"
    text += f" (Student's t). The gap is that to {baseline}, seed by seed, as runs of a seed see the same data in the"
    blocks: list[Block] = [Prose(f"{text} same order; positive is worse."), *one_seed(rows)]
    unstable = unstable_text(results)
    blocks += [Note(unstable, "warning")] if unstable else []
    blocks.append(rows_table("final-losses", rows, columns, "Final losses, lowest first in each setting."))
    gaps = _by_gap([row for row in rows if row["gap"]])
    near = near_gaps(gaps)
    blocks += [_gap_chart("gaps", gaps, baseline)] if gaps else []
    more = f", those that are near {baseline} drawn larger"
    blocks += [_gap_chart("gaps-near", near, baseline, more)] if near else []
    return Section("losses", "Final losses", blocks)


def unstable_text(results: Results) -> str:
    """Which variants skipped steps or ended without a test loss, and how often.

    >>> row = {"variant": "softmax_over_t", "skipped": 14, "steps": 200, "lost": 0, "runs": 2}
    >>> unstable_text({"summary": {"unstable": [row]}})
    'Steps skipped as not finite: softmax_over_t 14 of 200.'
    """
    said = []
    for title, what, of in (
        ("Steps skipped as not finite", "skipped", "steps"),
        ("Runs without a finite test loss", "lost", "runs"),
    ):
        rows = [row for row in results["summary"].get("unstable", []) if row[what]]
        if rows:
            text = ", ".join(f"{row['variant']} {row[what]:,} of {row[of]:,}" for row in rows)
            said.append(f"{title}: {text}.")
    return " ".join(said)


def one_seed(rows: Sequence[Row]) -> list[Block]:
    """A warning where there are no intervals."""
    return [Note(ONE_SEED, "warning")] if seeds_of(rows) < 2 else []


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
    order = list(dict.fromkeys(row["variant"] for row in rows))
    by_variant = sorted(placed(rows), key=lambda one: order.index(one[1]["variant"]))
    records = [{"variant": row["variant"], "setting": place, **ends("gap", row["gap"])} for place, row in by_variant]
    return data_chart(
        name,
        records,
        value=Axis("gap", f"test loss − {baseline}'s, nats"),
        series="variant",
        panel="setting",
        reference=0.0,
        alt=f"Gap of each variant's test loss to {baseline}, with intervals: {range_text(records, 'gap', '+.3f')}.",
        caption=f"Gap to {baseline} with its 95 % interval over seeds{more}; the dashed line is {baseline} itself.",
    )


def range_text(records: Sequence[dict[str, Any]], name: str, number: str) -> str:
    """The smallest and the largest number with their variants."""
    low, high = (pick(records, key=lambda record: record[name]) for pick in (min, max))
    return f"from {low[name]:{number}} for {low['variant']} to {high[name]:{number}} for {high['variant']}"


def family_of(variant: str) -> tuple[str, int] | None:
    """The family of a variant and its order; None for what is not a polynomial by name."""
    if linear := LINEAR.fullmatch(variant):
        return f"{linear[1]}_power_n", 1
    match = FAMILY.fullmatch(variant)
    return (f"{match[1]}_n", int(match[2])) if match else None


def orders_section(results: Results) -> Section | None:
    """One line per family that has several orders, and softmax, which has all of them, as a level."""
    baseline = results.get("summary", {}).get("baseline", "softmax")
    groups = places(summary_rows(results, "final", "test_loss"))
    records = [
        {
            "family": family,
            "order": order,
            "variant": row["variant"],
            "setting": place,
            **ends("loss", row["test_loss"]),
        }
        for place, rows in groups.items()
        for family, order, row in _orders(rows, baseline)
    ]
    if not records:
        return None
    lowest = min((record for record in records if record["family"] != baseline), key=lambda record: record["loss"])
    text = (
        "A polynomial of the score in place of exp: taylor_n is exp cut after order n, power_n the n-th power, on the"
    )
    chart = data_chart(
        "orders-chart",
        records,
        value=Axis("loss", "test loss, nats"),
        by="order",
        series="family",
        panel="setting",
        alt=f"Test loss against the order of the polynomial, one line per family and a level for {baseline}."
        f" The lowest loss of a polynomial is {lowest['loss']:.3f}, of {lowest['variant']}.",
        caption="Test loss against the order, with 95 % intervals over seeds.",
    )
    text += f" features that the name says. {baseline} has all orders and is drawn as a level."
    return Section("orders", "Order against loss", [Prose(text), chart])


def _orders(rows: Sequence[Row], baseline: str) -> list[tuple[str, int, Row]]:
    families: dict[str, dict[int, Row]] = {}
    for row in rows:
        if family := family_of(row["variant"]):
            families.setdefault(family[0], {})[family[1]] = row
    families = {name: orders for name, orders in families.items() if len(orders) > 1}
    orders = sorted({order for known in families.values() for order in known})
    level = next((row for row in rows if row["variant"] == baseline), None)
    lines = ({baseline: dict.fromkeys(orders, level)} if level and orders else {}) | families
    return [(name, order, row) for name, known in lines.items() for order, row in sorted(known.items())]


def costs_section(results: Results) -> Section | None:
    """Tokens per second, beside softmax's, and bytes."""
    rows = [row for row in results.get("summary", {}).get("final", []) if row["tokens_per_second"]]
    if not rows:
        return None
    baseline = results["summary"]["baseline"]
    columns: list[ColumnOf] = [
        *place_columns(rows),
        (Column("tokens/s", ",.0f"), lambda row: row["tokens_per_second"]["mean"]),
        (f"× {baseline}", lambda row: measured(row["speed_ratio"], 2)),
        (Column("seconds per run", ",.1f"), "seconds"),
        (Column("memory", unit="bytes"), lambda row: size_cell(row["memory_bytes"])),
        (Column("decoding state", unit="bytes"), lambda row: size_cell(row["state_bytes"])),
    ]
    text = "Speed of training steps as measured in the runs; runs at the same time share the machine. Relative"
    text += " speeds are those of the same seed. Memory is the peak of the run's process."
    text += " The decoding state is what generation carries after a context in float32."
    blocks: list[Block] = [Prose(text), rows_table("costs-table", rows, columns, "Time and memory of each variant.")]
    compared = sorted((row for row in rows if row["speed_ratio"]), key=lambda row: -row["speed_ratio"]["mean"])
    if compared and len(places(compared)) <= CHARTED:
        records = [
            {"variant": row["variant"], "setting": place, **ends("speed", row["speed_ratio"], lowest=0.0)}
            for place, row in placed(compared)
        ]
        chart = data_chart(
            "speeds",
            records,
            value=Axis("speed", f"training speed ÷ {baseline}'s"),
            series="variant",
            panel="setting",
            reference=1.0,
            alt=f"Training speed of each variant relative to {baseline}: {range_text(records, 'speed', '.2f')}.",
            caption=f"Tokens per second, relative to {baseline}; right of the dashed line is faster.",
        )
        blocks.append(chart)
    return Section("costs", "Time and memory", blocks)


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
