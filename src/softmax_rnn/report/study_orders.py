"""The order of a polynomial against the loss, on a study's page: how fast a truncated exp comes near softmax.

>>> family_of("taylor_4"), family_of("elu_power_2"), family_of("linear_elu"), family_of("softmax")
(('taylor_n', 4), ('elu_power_n', 2), ('elu_power_n', 1), None)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from softmax_rnn.report.elements import Block, ChartBlock, Prose, Section
from softmax_rnn.report.plots import Axis, line_chart, panel_chart
from softmax_rnn.report.study_values import Results, Row, ends, places, summary_rows
from softmax_rnn.report.tables import records_table

# The name of a linear attention says its feature map; it is the first power on it.
LINEAR = re.compile(r"linear_(elu|relu|cosine)")
FAMILY = re.compile(r"(.*(?:taylor|power|sata))_(\d+)")


def family_of(variant: str) -> tuple[str, int] | None:
    """The family of a variant and its order; None for what is no polynomial by name."""
    if linear := LINEAR.fullmatch(variant):
        return f"{linear[1]}_power_n", 1
    found = FAMILY.fullmatch(variant)
    return (f"{found[1]}_n", int(found[2])) if found else None


def orders_section(results: Results) -> Section | None:
    """One line a family that has several orders, and softmax, which has all of them, as a level."""
    baseline = results.get("summary", {}).get("baseline", "softmax")
    records = []
    for place, rows in places(summary_rows(results, "final", "test_loss")).items():
        records += [record | {"setting": place} for record in _records(rows, baseline)]
    if not records:
        return None
    blocks: list[Block] = [
        Prose(
            f"A polynomial of the score in place of exp: taylor_n is exp cut after order n, power_n the n-th power,"
            f" on the features that the name says. {baseline} has all orders and is drawn as a level."
        ),
        _chart(records, baseline),
    ]
    return Section("orders", "Order against loss", blocks)


def _records(rows: Sequence[Row], baseline: str) -> list[dict[str, Any]]:
    found: dict[str, dict[int, Row]] = {}
    for row in rows:
        if family := family_of(row["variant"]):
            found.setdefault(family[0], {})[family[1]] = row
    families = {name: orders for name, orders in found.items() if len(orders) > 1}
    orders = sorted({order for known in families.values() for order in known})
    level = next((row for row in rows if row["variant"] == baseline), None)
    lines = ({baseline: dict.fromkeys(orders, level)} if level and orders else {}) | families
    return [
        {"family": name, "order": order, "variant": row["variant"], **_loss(row)}
        for name, known in lines.items()
        for order, row in sorted(known.items())
    ]


def _loss(row: Row) -> dict[str, float]:
    found = ends(row["test_loss"])
    return {"test loss": found["mean"], "low": found["low"], "high": found["high"]}


def _chart(records: Sequence[dict[str, Any]], baseline: str) -> ChartBlock:
    options: dict[str, Any] = {"x": "order", "y": Axis("test loss", "test loss, nats"), "series": "family"}
    if any(record["low"] != record["high"] for record in records):
        options |= {"low": "low", "high": "high"}
    several = len({record["setting"] for record in records}) > 1
    chart = panel_chart(records, panel="setting", **options) if several else line_chart(records, **options)
    lowest = min((record for record in records if record["family"] != baseline), key=lambda record: record["test loss"])
    return ChartBlock(
        "orders-chart",
        chart,
        alt=f"Test loss against the order of the polynomial, one line a family and a level for {baseline}."
        f" The lowest loss of a polynomial is {lowest['test loss']:.3f}, of {lowest['variant']}.",
        caption="Test loss against the order, with 95 % intervals over seeds.",
        table=records_table(
            "orders-data",
            list(records),
            ["family", "order", "variant", "setting", "test loss", "low", "high"],
            "Test loss in nats by order.",
        ),
    )
