"""Figures with a slider that work without a server: exp against T_N, and a toy head whose weights change with N.

>>> "vegaEmbed" in exp_figure(), "N" in head_figure()
(True, True)
"""

from __future__ import annotations

import json
import math
from typing import Any

import altair as alt
import torch

from softmax_rnn.analysis.order_by_order import cut_weights, softmax_weights
from softmax_rnn.analysis.reading import Head
from softmax_rnn.report.theme import in_file, vega_config

LIBRARY = "charts.js"
MOST = 16
WORDS = ("The", "cat", "sat", "on", "the", "warm", "mat")


def exp_figure() -> str:
    """exp, and its Taylor polynomial of the chosen order."""
    places = [n / 5 for n in range(-30, 26)]
    rows = [
        {"x": x, "N": n, "y": sum(x**m / math.factorial(m) for m in range(n + 1))}
        for n in range(MOST + 1)
        for x in places
    ]
    truth = [{"x": x, "y": math.exp(x)} for x in places]
    across = alt.X("x:Q", title="x")
    up = alt.Y("y:Q", title="exp(x) and T_N(x)", scale=alt.Scale(domain=[-20, 60], clamp=False))
    cut = alt.Chart(alt.Data(values=rows)).transform_filter("datum.N == order")
    lines = cut.mark_line(clip=True, strokeDash=[6, 3], color="#c24100").encode(x=across, y=up)
    exact = alt.Chart(alt.Data(values=truth)).mark_line(clip=True, color="#0072b2").encode(x=across, y=up)
    caption = "exp (solid) and its Taylor polynomial of order N (dashed)."
    # The first figure of the page brings the library along.
    return _figure("exp-series", alt.layer(exact, lines), 3, caption, f'<script src="{LIBRARY}"></script>')


def head_figure() -> str:
    """The weights of one query of a small head, cut after the chosen order, beside softmax's."""
    torch.manual_seed(15)  # several keys matter, and scores of −5 make low orders go wrong
    q, k, v = torch.randn(3, len(WORDS), 4, dtype=torch.float64)
    head = Head(1.6 * q, k, v)
    names = [f"{n + 1} {word}" for n, word in enumerate(WORDS)]
    rows = [
        {"key": name, "N": n, "weight": weight}
        for n in range(MOST + 1)
        for name, weight in zip(names, cut_weights("taylor", n, head)[-1].clamp(-1, 2).tolist(), strict=True)
    ]
    exact = [
        {"key": name, "weight": weight} for name, weight in zip(names, softmax_weights(head)[-1].tolist(), strict=True)
    ]
    across = alt.X("key:N", title="key", sort=None, axis=alt.Axis(labelAngle=0))
    up = alt.Y("weight:Q", title="weight of the last query", scale=alt.Scale(domain=[-0.6, 1]))
    bars = alt.Chart(alt.Data(values=rows)).transform_filter("datum.N == order")
    cut = bars.mark_bar(clip=True, color="#0072b2", opacity=0.5).encode(x=across, y=up)
    truth = alt.Chart(alt.Data(values=exact)).mark_point(
        shape="diamond", size=110, color="#c24100", strokeWidth=2.5, opacity=1
    )
    chart = alt.layer(cut, truth.encode(x=across, y=up))
    return _figure("toy-head", chart, 2, "Weights of a head of 4 dimensions cut after order N; diamonds are softmax's.")


def _figure(name: str, chart: Any, first: int, caption: str, library: str = "") -> str:
    slider = alt.param(name="order", value=first, bind=alt.binding_range(min=0, max=MOST, step=1, name="order N "))
    spec = chart.add_params(slider).properties(width=520, height=260).to_dict()
    config = vega_config(in_file) | {"background": "white"}
    text = json.dumps([spec, config]).replace("<", "\\u003c")
    draw = f"vegaEmbed('#{name}', s[0], {{config: s[1], actions: false, ast: true, renderer: 'svg'}})"
    figure = f'<div id="{name}" role="group" aria-label="{caption}"></div><figcaption>{caption}</figcaption>'
    return f"<figure>{figure}</figure>\n{library}<script>{{ const s = {text}; {draw}; }}</script>"
