"""Which order carries which key: bars of keys, stacked from the orders, beside a diamond for softmax.

The chart is made once; each call puts its numbers in, which takes a millisecond where making it takes a hundred.

>>> chart = order_bars([{"key": "1 the", "orders": "0", "part": 0.2, "place": 0}], [{"key": "1 the", "weight": 0.3}])
>>> [layer["mark"]["type"] for layer in chart["layer"]]
['bar', 'rule', 'point']
>>> chart["layer"][0]["data"]["values"]
[{'part': 0.2, 'place': 0.0, 'key': '1 the', 'orders': '0'}]
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import altair as alt

from softmax_rnn.report.channels import page_width, tooltip
from softmax_rnn.report.chart_data import Axis, Records, names, values

HIGHEST = 1.6
"""Bars that leave −1.6 … 1.6 go beyond the chart: terms of opposite sign cancel there."""
TITLE = "weight, in units of softmax's denominator"


def order_bars(parts: Records, weights: Records) -> dict[str, Any]:
    """``parts`` have key, orders, part and place (the order of stacking), ``weights`` have key and weight."""
    bars = values(parts, {"part": Axis("part"), "place": Axis("place")}, {"key": "key", "orders": "orders"})
    dots = values(weights, {"weight": Axis("weight")}, {"key": "key"})
    chart = copy.deepcopy(_template())
    stacked, _, truth = chart["layer"]
    stacked["data"]["values"], truth["data"]["values"] = bars, dots
    for layer in (stacked, truth):
        layer["encoding"]["x"]["scale"]["domain"] = names(weights, "key")
    stacked["encoding"]["y"]["scale"]["domain"] = _ends(bars, dots)
    stacked["encoding"]["color"]["scale"]["domain"] = names(parts, "orders")
    return chart


@cache
def _template() -> dict[str, Any]:
    across = alt.X("key:N", title="key", scale=alt.Scale(domain=[""]), axis=alt.Axis(labelAngle=-40))
    colour = alt.Color(
        "orders:N", scale=alt.Scale(domain=[""], scheme="viridis"), legend=alt.Legend(title="orders", columns=4)
    )
    tooltips = tooltip({"key": "key", "orders": "orders", "part": "part"}, texts=("key", "orders"))
    base = alt.Chart(alt.Data(values=[]))
    stacked = base.mark_bar(clip=True, aria=False).encode(
        x=across,
        y=alt.Y("part:Q", title=TITLE, stack="zero", scale=alt.Scale(domain=[0, 1], nice=False)),
        color=colour,
        order=alt.Order("place:Q"),
        tooltip=tooltips,
    )
    zero = alt.Chart(alt.Data(values=[{"y": 0}])).mark_rule(aria=False).encode(y=alt.Y("y:Q", title=TITLE))
    diamond = base.mark_point(
        filled=False, shape="diamond", size=90, strokeWidth=2, clip=True, aria=False, color="var(--ink)"
    )
    truth = diamond.encode(
        x=across,
        y=alt.Y("weight:Q", title=TITLE),
        tooltip=tooltip({"key": "key", "weight": "softmax"}, texts=("key",)),
    )
    chart = alt.layer(stacked, zero, truth).add_params(page_width()).properties(width="container", height=300)
    return chart.to_dict()


def _ends(bars: list[dict[str, Any]], dots: list[dict[str, Any]]) -> list[float]:
    """The heights that are shown: all of them, up to `HIGHEST`."""
    sums: dict[tuple[str, bool], float] = {}
    for bar in bars:
        if bar["part"] is not None:
            side = (bar["key"], bar["part"] >= 0)
            sums[side] = sums.get(side, 0.0) + bar["part"]
    heights = [*sums.values(), *(dot["weight"] for dot in dots if dot["weight"] is not None), 0.0]
    least, most = max(min(heights), -HIGHEST), min(max(heights), HIGHEST)
    return [least * 1.05, max(most, 1e-3) * 1.05]
