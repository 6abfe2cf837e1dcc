"""Order by order: what the first tab shows for one head, one query and one order, as HTML."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from softmax_rnn.analysis import order_by_order as cut
from softmax_rnn.analysis.methods import METHODS, MOST_ORDERS, nearest_order
from softmax_rnn.analysis.reading import Head
from softmax_rnn.explore.readings import Text
from softmax_rnn.explore.views import chart_html, note_html, picture_html, words_html
from softmax_rnn.report.chart_data import Axis
from softmax_rnn.report.order_bars import HIGHEST, order_bars
from softmax_rnn.report.plots import line_chart, unchecked_charts

MOST_KEYS = 14
"""Keys of the stacked picture: those that matter most, in the order of the text."""
NAMED = 3
"""Keys of each line of words that a screen reader names."""
MOST_GROUPS = 8
"""Colours of the stacked picture: neighbouring orders share one where there are more."""


def order_view(text: Text, layer: int, head: int, query: int, method: str, order: int) -> tuple[str, str]:
    """Two pieces of HTML: words and maps, and the orders of each key."""
    one = text.reading.head(layer, head)
    shown = nearest_order(method, order)
    terms = cut.order_terms(method, shown, one, query)
    exact, series = cut.softmax_weights(one), cut.cut_weights(method, shown, one)
    said = _said(text, one, query, method, order, shown)
    words = _words(text, query, exact[query], series[query], shown)
    maps = _maps(query, exact, series, shown)
    return said + words + maps, _orders(text, query, terms, exact[query], METHODS[method].step)


def distance_view(text: Text, layer: int, head: int, query: int, method: str) -> str:
    """How far each order is from softmax; it does not depend on the slider."""
    one = text.reading.head(layer, head)
    terms, step = cut.order_terms(method, MOST_ORDERS, one, query), METHODS[method].step
    rows = [
        {"order": n * step, "distance": max(distance, 1e-16), "polynomial": METHODS[method].title}
        for n, distance in enumerate(cut.distance_by_order(terms, cut.softmax_weights(one)[query, : query + 1]))
    ]
    y = Axis("distance", "distance to softmax's weights", log=True)
    with unchecked_charts():
        chart = line_chart(rows, x=Axis("order", "order"), y=y, series="polynomial", height=300)
    caption = note_html(
        "Half the sum of |difference| over the keys of this query: 0 is softmax, 1 has no overlap with it."
    )
    return caption + chart_html(chart, f"Distance to softmax against the order, {METHODS[method].title}", height=380)


def _said(text: Text, one: Head, query: int, method: str, order: int, shown: int) -> str:
    scores = one.scores[query, : query + 1]
    low, high = float(scores.min()), float(scores.max())
    error = float(cut.output_error(method, shown, one)[query])
    moved = "" if shown == order else f" This polynomial has no order {order}; {shown} is shown."
    note = (
        f"Query {query + 1}, “{text.tokens[query].strip()}”: scores {low:.1f} to {high:.1f}."
        f" Cut after order {shown}, the output is off by {100 * error:.3g} % of the largest value.{moved}"
    )
    return note_html(note)


def _words(text: Text, query: int, exact: Tensor, series: Tensor, order: int) -> str:
    tokens, keys = text.tokens[: query + 1], slice(0, query + 1)
    rows = (
        ("softmax", exact[keys]),
        (f"cut after order {order}", series[keys]),
        ("difference: cut − softmax", (series - exact)[keys]),
    )
    most = float(exact[keys].max())
    shown = []
    for title, weights in rows:
        best = weights.nan_to_num(0.0).abs().topk(min(NAMED, query + 1)).indices.tolist()
        alt = f"{title}, largest: {', '.join(f'{tokens[key].strip()} {float(weights[key]):.3f}' for key in best)}"
        shown.append(words_html(tokens, weights.tolist(), title, chosen=query, largest=most, alt=alt))
    return "".join(shown)


def _maps(query: int, exact: Tensor, series: Tensor, order: int) -> str:
    difference = series - exact
    size = difference[torch.ones_like(exact, dtype=torch.bool).tril()].abs()
    worst = float(size.max()) if bool(size.isfinite().all()) else float("inf")
    alt = f"queries down, keys across, {len(exact)} × {len(exact)}"
    maps = (
        (exact, "softmax", f"Attention weights of softmax, {alt}"),
        (series, f"cut after order {order}", f"Weights cut after order {order}, {alt}"),
        (difference, f"difference, at most {worst:.2g}", f"Cut minus softmax, {alt}"),
    )
    parts = [picture_html(weights, title, said, largest=1.0, row=query) for weights, title, said in maps]
    note = note_html("Queries down, keys across, shaded by the root of the weight; this query is framed.")
    return f'{note}<div class="maps">{"".join(parts)}</div>'


def _orders(text: Text, query: int, terms: Tensor, exact: Tensor, step: int) -> str:
    """The stacked picture of the keys with the largest weights."""
    reached = terms.sum(0).nan_to_num(0.0)
    importance = torch.maximum(exact[: query + 1], reached.abs().clamp(max=1.0))
    best = importance.topk(min(MOST_KEYS, query + 1)).indices.sort().values.tolist()
    names = {key: f"{key + 1} {text.tokens[key].strip() or '␣'}" for key in best}
    parts = []
    for place, (name, group) in enumerate(_groups(len(terms), step)):
        sums = terms[group].sum(0)
        parts += [{"key": names[key], "orders": name, "part": float(sums[key]), "place": place} for key in best]
    weights = [{"key": names[key], "weight": float(exact[key])} for key in best]
    leaves = float(terms[:, best].abs().sum(0).max()) > HIGHEST
    alt = "Which order carries which key: bars stacked from the orders, softmax's weight as a diamond"
    more = " Bars leave the chart: terms of opposite sign cancel." if leaves else ""
    caption = note_html(f"Which order carries which key. Diamonds are softmax's weights.{more}")
    return caption + chart_html(order_bars(parts, weights), alt, height=380)


def _groups(count: int, step: int) -> Iterator[tuple[str, slice]]:
    """Orders in at most `MOST_GROUPS` groups of the same size."""
    size = -(-count // MOST_GROUPS)
    for first in range(0, count, size):
        last = min(first + size, count) - 1
        yield (f"{first * step}" if first == last else f"{first * step}–{last * step}"), slice(first, last + 1)
