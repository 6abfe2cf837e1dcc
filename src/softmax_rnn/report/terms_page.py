"""The page of the Taylor terms: from the record that ``softmax-rnn terms`` writes to a `Page`.

Order of the page: how large the terms are, what the scores are like, what truncation does to the loss, which polynomial
needs the fewest orders, and what to do with each layer.
"""

from __future__ import annotations

import math
from typing import Any

from softmax_rnn.report.cells import Column
from softmax_rnn.report.chart_data import Axis
from softmax_rnn.report.elements import Block, ChartBlock, CommandBlock, Formula, Note, Page, Prose, Section, TableBlock
from softmax_rnn.report.plots import heat_map, interval_chart, line_chart, panel_chart
from softmax_rnn.report.tables import records_table

Record = dict[str, Any]

FORMULAS = "exp(s) = Σₙ sⁿ/n!        T_N(s) = Σ_{n≤N} sⁿ/n!        o = Σ_j f(s_j) v_j / Σ_j f(s_j)"
MOST_ORDERS_SHOWN = 60
PLAIN, SQUARE = "polynomial of this order", "square: never negative"


def terms_page(value: Record) -> Page:
    """The whole page; the parts about losses are left out where none were measured."""
    sections = [_terms(value), _scores(value), _attention(value)]
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


def _terms(value: Record) -> Section:
    rows = [
        {"layer": layer["layer"], "order": n, "log10": log / math.log(10)}
        for layer in value["layers"]
        for n, log in enumerate(layer["log_terms"][: MOST_ORDERS_SHOWN + 1])
        if log is not None
    ]
    table = records_table("terms-data", rows, ["layer", "order", "log10"], "log₁₀ of the mean |sⁿ/n!| of each layer.")
    chart = heat_map(
        rows, x=Axis("order", "order n"), y=Axis("layer"), value=Axis("log10", "mean |sⁿ/n!|, power of ten"), height=420
    )
    words = "The mean size of each term of the series, over all pairs of a query and a key that it sees."
    dominant = [
        [one["layer"], one["dominant_order"], one["order_within"], one["order_within_all"], one["order_guaranteed"]]
        for one in value["layers"]
    ]
    columns = ["layer", "dominant order", "order within ε", "for every query", "guaranteed by the bound"]
    caption = (
        f"Dominant order, and the orders from which on attention cut there is within ε = {value['epsilon']:g} of"
        f" softmax, in units of the largest |v|; – where it is not by order {value['orders']}."
    )
    blocks: list[Block] = [
        Formula(FORMULAS),
        ChartBlock(
            "terms", chart, "Heat map of layers against orders: the size of the mean Taylor term.", words, table
        ),
        TableBlock("dominant", columns, dominant, caption),
    ]
    return Section("terms-section", "How large the terms are", blocks)


def _scores(value: Record) -> Section:
    rows = [
        {
            "layer": f"layer {one['layer']}",
            "median": one["quantiles"]["0.5"],
            "1 %": one["quantiles"]["0.01"],
            "99 %": one["quantiles"]["0.99"],
            "lowest": one["low"],
            "highest": one["high"],
            "mean": one["mean"],
            "deviation": one["deviation"],
        }
        for one in value["layers"]
    ]
    chart = interval_chart(
        rows,
        name="layer",
        value=Axis("median", "score s: median, and from 1 % to 99 %"),
        low="1 %",
        high="99 %",
        reference=0.0,
    )
    columns = ["layer", "lowest", "1 %", "median", "99 %", "highest", "mean", "deviation"]
    numbers = [[row["layer"], *(row[name] for name in columns[1:])] for row in rows]
    heads = [columns[0], *(Column(name, ".2f") for name in columns[1:])]
    table = TableBlock("scores-data", heads, numbers, "The distribution of the scores of each layer.")
    alt = "The median score of each layer, with the interval from its 1 % to its 99 % quantile."
    return Section("scores-section", "The scores", [ChartBlock("scores", chart, alt, alt, table)])


def _attention(value: Record) -> Section:
    rows = [
        {"order": n, "layer": f"layer {one['layer']}", "error": error}
        for one in value["layers"][:: max(1, len(value["layers"]) // 6)]
        for n, error in enumerate(one["error"])
    ]
    chart = line_chart(
        rows, x=Axis("order", "order n"), y=Axis("error", "mean error of the output ÷ max|v|", log=True), series="layer"
    )
    table = records_table("error-data", rows, ["layer", "order", "error"], "Mean error of the attention output.")
    alt = "The error of attention cut at order n against the order, for some layers."
    words = f"{alt} Odd orders can have negative weights, and errors up to 2, where even ones have none."
    return Section("error-section", "Attention cut at an order", [ChartBlock("error", chart, alt, words, table)])


def _truncation(record: Record) -> Section:
    titles = {row["method"]: row["title"] for row in record["lowest"]}
    rows = [
        {
            "order": cut["order"],
            "loss": cut["loss"],
            "method": titles[cut["method"]],
            "range": titles[cut["method"]].replace("²", "") + (", odd" if cut["order"] % 2 else ""),
            "kind": SQUARE if "²" in titles[cut["method"]] else PLAIN,
            "nonpositive": cut["nonpositive"],
        }
        for cut in record["cuts"]
    ]
    chart = panel_chart(
        rows,
        x=Axis("order", "order of the polynomial", log=True),
        y=Axis("loss", "loss, nats", log=True),
        series="range",
        panel="kind",
        columns=2,
        width=360,
        height=300,
    )
    table = records_table("losses-data", rows, ["method", "order", "loss", "nonpositive"], "Losses of the cut models.")
    percent = f"{100 * record['tolerance']:g} %"
    lowest = [[row["title"], row["order"], row["last_order"], row["extra_state"]] for row in record["lowest"]]
    columns = ["polynomial", f"lowest order within {percent}", "tried up to", "numbers a head remembers beside"]
    caption = (
        f"The lowest order at which the loss of the model is within {percent} of softmax's {record['loss']:.4f}"
        f" ({record['tokens']} predicted tokens). – means that no order tried was. The true range of the row needs all"
        " keys: it is the reference."
    )
    alt = "The loss of the model with exp replaced by a polynomial, against its degree, one line a method."
    blocks: list[Block] = [
        ChartBlock("losses", chart, alt, alt, table),
        TableBlock("lowest", columns, lowest, caption),
        Note("Rows whose sum of weights is not positive are no averages; the data of the chart count them."),
    ]
    return Section("truncation", "The model with softmax cut at an order", blocks)


def _layers(record: Record) -> Section:
    rows = [
        {
            "layer": cut["layer"],
            "cut": f"{cut['method'].replace('_', ' ')}, order {cut['order']}",
            "increase": cut["loss"] - record["loss"],
        }
        for cut in record["by_layer"]
    ]
    chart = line_chart(rows, x="layer", y=Axis("increase", "increase of the loss, nats", log=True), series="cut")
    table = records_table("layers-data", rows, ["cut", "layer", "increase"], "Increase of the loss, one layer cut.")
    alt = "The increase of the loss when only one layer is cut, against the layer."
    return Section("by-layer", "One layer at a time", [ChartBlock("layers", chart, alt, alt, table)])


def _ranges(value: Record) -> Section:
    columns = [
        "range",
        Column("width / true width, 5 %", ".2f"),
        Column("median", ".2f"),
        Column("95 %", ".2f"),
        Column("queries that reach beyond", ".1%"),
        Column("upper end above the largest score, median", ".2f"),
    ]
    keys = ("width_5", "width_median", "width_95", "rows_outside", "above_median")
    rows = [[row["range"].replace("_", " "), *(row[key] for key in keys)] for row in value["ranges"]]
    caption = "How close the ranges that a causal state can supply come to the true range of each query's scores."
    words = Prose(
        "A polynomial that fits exp on the range of a query's scores needs few orders. The true range is known only to"
        " who keeps all keys; these are guessed from running values of the keys."
    )
    return Section(
        "ranges", "The range that a state can know", [words, TableBlock("range-table", columns, rows, caption)]
    )


def _advice(value: Record) -> Section:
    blocks: list[Block] = []
    for name, title in (("advice", "for the loss"), ("epsilon_advice", "for the error of the attention output")):
        advice = value.get(name)
        if advice is None:
            continue
        rows = [
            [
                row["layer"],
                row["verdict"],
                row["order"],
                row["features"],
                row["state_bytes"],
                row["flops_per_token"],
                row["smaller_from"],
                row["faster_from"],
                row["reason"],
            ]
            for row in advice["layers"]
        ]
        columns = ["layer", "verdict", "order", "features"]
        columns += [Column("state bytes", ","), Column("operations a token", ","), Column("smaller from context", ",")]
        columns += [Column("fewer operations from", ","), "reason"]
        caption = f"Advice {title}. {advice['summary']}"
        blocks.append(TableBlock(name.replace("_", "-"), columns, rows, caption, filterable=True))
    blocks.append(
        CommandBlock("from softmax_rnn.model.convert import convert\nmodel = convert(model, Path('terms.json'))")
    )
    return Section("advice-section", "Advice", blocks)
