"""The page of the Taylor terms: from the record that ``softmax-rnn terms`` writes to a `Page`.

Order of the page: how large the terms are, what the scores are like, what truncation does to the loss, which polynomial
needs the fewest orders, and what to do with each layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from softmax_rnn.report.cells import Column
from softmax_rnn.report.chart_data import Axis
from softmax_rnn.report.data_blocks import Row, data_chart, rows_table
from softmax_rnn.report.elements import Block, ChartBlock, CommandBlock, Formula, Note, Page, Prose, Section
from softmax_rnn.report.plots import heat_map
from softmax_rnn.report.tables import records_table

Record = dict[str, Any]

FORMULAS = "exp(s) = Σₙ sⁿ/n!        T_N(s) = Σ_{n≤N} sⁿ/n!        o = Σ_j f(s_j) v_j / Σ_j f(s_j)"
MOST_ORDERS_SHOWN = 60
PLAIN, SQUARE = "polynomial of this order", "square: never negative"
QUANTILES = {"1 %": "0.01", "median": "0.5", "99 %": "0.99"}


def terms_page(value: Record) -> Page:
    """The whole page; the parts about losses are left out where none were measured."""
    sections = [_terms(value), _scores(value), _attention(value)]
    if "near_far" in value:
        sections.append(_near_far(value["near_far"]))
    if "truncation" in value:
        sections += [_truncation(value["truncation"]), _layers(value["truncation"])]
    sections += [_ranges(value)] if value["ranges"] else []
    sections.append(_advice(value))
    facts = {
        "model": str(value["model"]),
        "text": f"{value.get('text', 'given tokens')}, {value['tokens']} tokens in windows of {value['context']}",
        "time": f"{value['timing']['statistics_seconds']:.1f} s for the statistics,"
        f" {value['timing']['forward_seconds']:.1f} s for a plain pass",
    }
    return Page(f"Taylor terms of {value['model']}", "Softmax attention as a sum of orders", sections, facts)


def study_terms_section(results: Mapping[str, Any]) -> Section | None:
    """The terms of a model that a study has trained, on the study's page."""
    terms = results.get("terms") or {}
    rows = term_rows(terms.get("layers", []))
    if not rows:
        return None
    text = f"exp(s) = Σ sⁿ/n!, term by term, for the scores s of the trained {terms.get('variant', 'softmax')} model on"
    text += " test data. The order with the largest term says which of the recurrent networks that make up softmax"
    text += " attention contributes most in a layer."
    largest = list(_largest(rows).values())
    table = rows_table(
        "terms-dominant",
        largest,
        [("layer", "layer"), ("order of the largest term", "order")],
        "The order whose term is largest, layer by layer.",
    )
    return Section("terms", "Taylor terms of the trained model", [Prose(text), _terms_map("terms-map", rows), table])


def term_rows(layers: Sequence[Row]) -> list[Record]:
    """Layer, order and log₁₀ of the mean |s^n/n!|; terms that are 0 are left out.

    >>> term_rows([{"layer": 0, "log_terms": [0.0, None]}])
    [{'layer': 0, 'order': 0, 'log10': 0.0}]
    """
    return [
        {"layer": layer["layer"], "order": order, "log10": log / math.log(10)}
        for layer in layers
        for order, log in enumerate(layer["log_terms"][: MOST_ORDERS_SHOWN + 1])
        if log is not None
    ]


def _largest(rows: Sequence[Record]) -> dict[int, Record]:
    largest: dict[int, Record] = {}
    for row in rows:
        if row["layer"] not in largest or row["log10"] > largest[row["layer"]]["log10"]:
            largest[row["layer"]] = row
    return largest


def _terms_map(id: str, rows: Sequence[Record]) -> ChartBlock:
    orders = [row["order"] for row in _largest(rows).values()]
    value = Axis("log10", "mean |sⁿ/n!|, power of ten")
    return ChartBlock(
        id,
        heat_map(rows, x=Axis("order", "order n"), y=Axis("layer"), value=value),
        f"Mean size of the Taylor terms by layer and order; the largest term of a layer has an order between"
        f" {min(orders)} and {max(orders)}.",
        "Mean |sⁿ/n!| over heads, queries and keys, as a power of ten; lighter is larger.",
        records_table(f"{id}-data", rows, "log₁₀ of the mean |sⁿ/n!| of each layer."),
    )


def _terms(value: Record) -> Section:
    caption = f"Dominant order, and the orders from which attention cut there is within ε = {value['epsilon']:g} of"
    caption += f" softmax, in units of the largest |v|; – where it is not by order {value['orders']}."
    columns = [
        ("layer", "layer"),
        ("dominant order", "dominant_order"),
        ("order within ε", "order_within"),
        ("for every query", "order_within_all"),
        ("guaranteed by the bound", "order_guaranteed"),
    ]
    table = rows_table("dominant", value["layers"], columns, caption)
    blocks = [Formula(FORMULAS), _terms_map("terms", term_rows(value["layers"])), table]
    return Section("terms-section", "How large the terms are", blocks)


def _scores(value: Record) -> Section:
    records = [
        {"layer": f"layer {one['layer']}", "lowest": one["low"], "highest": one["high"]}
        | {name: one["quantiles"][key] for name, key in QUANTILES.items()}
        | {"mean": one["mean"], "deviation": one["deviation"]}
        | {"low": one["quantiles"]["0.01"], "high": one["quantiles"]["0.99"]}
        for one in value["layers"]
    ]
    words = "The median score of each layer, with the interval from its 1 % to its 99 % quantile."
    chart = data_chart(
        "scores",
        records,
        value=Axis("median", "score s: median, and from 1 % to 99 %"),
        series="layer",
        reference=0.0,
        caption=words,
    )
    return Section("scores-section", "The scores", [chart])


def _attention(value: Record) -> Section:
    records = [
        {"order": n, "layer": f"layer {one['layer']}", "error": error}
        for one in value["layers"][:: max(1, len(value["layers"]) // 6)]
        for n, error in enumerate(one["error"])
    ]
    words = "The error of attention cut at order n against the order, for some layers."
    chart = data_chart(
        "error",
        records,
        value=Axis("error", "mean error of the output ÷ max|v|", log=True),
        by=Axis("order", "order n"),
        series="layer",
        alt=words,
        caption=f"{words} Odd orders can have negative weights, and errors up to 2, where even ones have none.",
    )
    return Section("error-section", "Attention cut at an order", [chart])


def _truncation(record: Record) -> Section:
    titles = {row["method"]: row["title"] for row in record["lowest"]}
    records = [
        {
            "method": titles[cut["method"]],
            "order": cut["order"],
            "loss": cut["loss"],
            "nonpositive": cut["nonpositive"],
            "range": titles[cut["method"]].replace("²", "") + (", odd" if cut["order"] % 2 else ""),
            "kind": SQUARE if "²" in titles[cut["method"]] else PLAIN,
        }
        for cut in record["cuts"]
    ]
    words = "The loss of the model with exp replaced by a polynomial, against its degree, one line per method."
    chart = data_chart(
        "losses",
        records,
        value=Axis("loss", "loss, nats", log=True),
        by=Axis("order", "order of the polynomial", log=True),
        series="range",
        panel="kind",
        caption=words,
        panels={"columns": 2, "width": 360, "height": 300},
    )
    percent = f"{100 * record['tolerance']:g} %"
    caption = f"The lowest order at which the loss of the model is within {percent} of softmax's {record['loss']:.4f}"
    caption += f" ({record['tokens']} predicted tokens). – means that no order tried was. The true range of the row"
    columns = [("polynomial", "title"), (f"lowest order within {percent}", "order"), ("tried up to", "last_order")]
    columns.append(("further numbers of state per head", "extra_state"))
    blocks: list[Block] = [
        chart,
        rows_table("lowest", record["lowest"], columns, f"{caption} needs all keys: it is the reference."),
        Note("Rows whose sum of weights is not positive are not averages; the data of the chart count them."),
    ]
    return Section("truncation", "The model with softmax cut at an order", blocks)


def _layers(record: Record) -> Section:
    records = [
        {"cut": f"{cut['method'].replace('_', ' ')}, order {cut['order']}", "layer": cut["layer"]}
        | {"increase": cut["loss"] - record["loss"]}
        for cut in record["by_layer"]
    ]
    words = "The increase of the loss when only one layer is cut, against the layer."
    value = Axis("increase", "increase of the loss, nats", log=True)
    chart = data_chart("layers", records, value=value, by="layer", series="cut", caption=words)
    return Section("by-layer", "One layer at a time", [chart])


def _near_far(record: Record) -> Section:
    losses = [
        ("parts", "parts"),
        (Column("loss", ".4f"), "loss"),
        (Column("perplexity", ".2f"), "perplexity"),
        (Column("row sums that are not positive", ","), "nonpositive"),
    ]
    text = "The model sees window and sinks exactly and the rest through a state. Where the loss of the window alone is"
    text += " that of both, the state is not used."
    blocks: list[Block] = [Prose(text)]
    blocks.append(rows_table("near-far-losses", record["losses"], losses, "The loss with each part alone."))
    shares = [row for row in record["layers"] if row["far_share"] is not None]
    if shares:
        columns = [("layer", "layer"), (Column("far part of the row sums", ".1%"), "far_share")]
        blocks.append(rows_table("near-far-shares", shares, columns, "How much of the weight lies outside the window."))
    return Section("near-far", "Window and far state by themselves", blocks)


def _ranges(value: Record) -> Section:
    columns = [
        ("range", lambda row: row["range"].replace("_", " ")),
        (Column("width / true width, 5 %", ".2f"), "width_5"),
        (Column("median", ".2f"), "width_median"),
        (Column("95 %", ".2f"), "width_95"),
        (Column("queries that reach beyond", ".1%"), "rows_outside"),
        (Column("upper end above the largest score, median", ".2f"), "above_median"),
    ]
    caption = "How close the ranges that a causal state can supply come to the true range of each query's scores."
    text = "A polynomial that fits exp on the range of a query's scores needs few orders. The true range takes all keys"
    blocks = [Prose(f"{text}; these ranges are estimated from running values of the keys.")]
    table = rows_table("range-table", value["ranges"], columns, caption)
    return Section("ranges", "The range that a state can know", [*blocks, table])


ADVICE = [
    *((name, name) for name in ("layer", "verdict", "order", "features")),
    (Column("state bytes", ","), "state_bytes"),
    (Column("operations per token", ","), "flops_per_token"),
    (Column("smaller from context", ","), "smaller_from"),
    (Column("fewer operations from", ","), "faster_from"),
    ("reason", "reason"),
]


def _advice(value: Record) -> Section:
    blocks: list[Block] = []
    for name, title in (("advice", "for the loss"), ("epsilon_advice", "for the error of the attention output")):
        if advice := value.get(name):
            caption = f"Advice {title}. {advice['summary']}"
            blocks.append(rows_table(name.replace("_", "-"), advice["layers"], ADVICE, caption))
    blocks.append(
        CommandBlock("from softmax_rnn.model.convert import convert\nmodel = convert(model, Path('terms.json'))")
    )
    return Section("advice-section", "Advice", blocks)
