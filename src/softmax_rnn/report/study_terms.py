"""Taylor terms of a trained model on a study's page: how large s^n/n! is, layer by layer.

They are the layers of the record that ``softmax-rnn terms`` writes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from softmax_rnn.report.elements import Block, ChartBlock, Prose, Section, TableBlock
from softmax_rnn.report.plots import Axis, heat_map
from softmax_rnn.report.study_values import Results
from softmax_rnn.report.tables import records_table

SHOWN = 40
"""Orders beyond are left out of the chart: their terms are small."""


def terms_section(results: Results) -> Section | None:
    """Mean |s^n/n!| by layer and order, and the order that is largest in each layer."""
    terms: Mapping[str, Any] = results.get("terms") or {}
    rows = term_rows(terms)
    if not rows:
        return None
    layers = list(dict.fromkeys(row["layer"] for row in rows))
    largest = [max((row for row in rows if row["layer"] == layer), key=lambda row: row["log10"]) for layer in layers]
    blocks: list[Block] = [
        Prose(
            f"exp(s) = Σ sⁿ/n!, term by term, for the scores s of the trained {terms.get('variant', 'softmax')} model"
            f" on test data. The order with the largest term says which of the recurrent networks that make up softmax"
            f" attention carries most in a layer."
        ),
        _chart(rows, largest),
        TableBlock(
            "terms-dominant",
            ["layer", "order of the largest term"],
            [[row["layer"], row["order"]] for row in largest],
            "The order whose term is largest, layer by layer.",
        ),
    ]
    return Section("terms", "Taylor terms of the trained model", blocks)


def term_rows(terms: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Layer, order and log₁₀ of the mean |s^n/n!|; terms that are 0 are left out.

    >>> term_rows({"layers": [{"layer": 0, "log_terms": [0.0, None]}]})
    [{'layer': 0, 'order': 0, 'log10': 0.0}]
    """
    rows = [
        {"layer": layer["layer"], "order": order, "log10": log / math.log(10)}
        for layer in terms.get("layers", [])
        for order, log in enumerate(layer["log_terms"])
        if log is not None
    ]
    return [row for row in rows if row["order"] <= SHOWN]


def _chart(rows: list[dict[str, Any]], largest: list[dict[str, Any]]) -> ChartBlock:
    orders = [row["order"] for row in largest]
    return ChartBlock(
        "terms-map",
        heat_map(rows, x=Axis("order", "order n"), y="layer", value=Axis("log10", "mean |sⁿ/n!|, power of ten")),
        alt=f"Mean size of the Taylor terms by layer and order; the largest term of a layer has an order between"
        f" {min(orders)} and {max(orders)}.",
        caption="Mean |sⁿ/n!| over heads, queries and keys, as a power of ten; lighter is larger.",
        table=records_table("terms-data", rows, ["layer", "order", "log10"], "Mean size of the terms."),
    )
