"""What the charts have in common: the look of a series, an axis with its ticks, and what the tooltip shows.

A series has a colour, a dash and a shape, so that no reader needs the colour, and of two lines that lie on each other
both are seen: nine colours, then the same colours with other dashes and shapes.

>>> log_ticks([0.00213, 30.7]), log_ticks([2.83, 21.4]), log_ticks([512, 1024, 16384])
([0.01, 0.1, 1, 10], [3, 4, 5, 7, 10, 15, 20], [512, 1024, 16384])
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal

import altair as alt

from softmax_rnn.report.cells import NOTHING
from softmax_rnn.report.chart_data import Axis, one_line
from softmax_rnn.report.theme import FIGURE_WIDTH, ON_LIGHT

DASHES = ([1, 0], [7, 4], [2, 3], [9, 3, 2, 3])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
# On a logarithmic axis: the leading digits that have a tick, by the decades that are shown.
DIGITS = ((3.5, (1,)), (1.5, (1, 3)), (1, (1, 2, 5)), (0, (1, 1.5, 2, 3, 4, 5, 7)))
MOST_TICKS, FEW = 9, 6


def looks(groups: Sequence[str], mark: Literal["strokeDash", "shape"] = "shape") -> dict[str, Any]:
    """Two channels of the series, the colour and the ``mark``, with a legend, which a single series does not need.

    The legend has as many columns as its longest name leaves room for.
    """
    channel, kinds = (alt.StrokeDash, DASHES) if mark == "strokeDash" else (alt.Shape, SHAPES)
    columns = alt.ExprRef(f"max(1, floor((page_width - 60) / {7 * min(max(map(len, groups)), 46) + 50}))")
    symbol = {"symbolType": "stroke", "symbolSize": 400} if mark == "strokeDash" else {}
    legend = alt.Legend(title=None, columns=columns, symbolOpacity=1, **symbol) if len(groups) > 1 else None
    return {
        "color": alt.Color("series:N", scale=alt.Scale(domain=list(groups)), legend=legend),
        mark: channel("series:N", scale=alt.Scale(domain=list(groups), range=_marks(groups, kinds)), legend=legend),
    }


def dashes(groups: Sequence[str]) -> alt.StrokeDashValue:
    """The dash of each series where the legend shows its shape: a separate channel would enter the legend."""
    place = f"indexof({json.dumps(groups)}, datum.series)"
    return alt.StrokeDashValue(alt.ExprRef(f"{json.dumps(_marks(groups, DASHES))}[{place}]"))


def position(channel: Any, field: str, one: Axis, shown: Iterable[float | None], **options: Any) -> Any:
    """A position on an axis with room for marks at its ends, and ticks that suit the numbers that are shown.

    Linear axes need not begin at 0. The title of a logarithmic one says so.
    """
    known = [value for value in shown if value is not None]
    if one.log:
        title = f"{one.label} (log scale)" if one.label else None
        scale = alt.Scale(type="log", nice=False, padding=8)
        options |= {"values": log_ticks(known), "format": ",", "tickCount": MOST_TICKS}
    else:
        title, scale = one.label or None, alt.Scale(zero=False, nice=False, padding=8)
        if known and all(map(_is_whole, known)) and max(known) - min(known) <= MOST_TICKS:
            options |= {
                "values": list(range(int(min(known)), int(max(known)) + 1)),
                "format": ",",
                "tickCount": MOST_TICKS + 1,
            }
    return channel(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(**options))


def log_ticks(values: Sequence[float]) -> list[float]:
    """Where a logarithmic axis has ticks: at the numbers themselves if they are few and short, else at round ones."""
    distinct = sorted(set(values))
    if not distinct:
        return []
    short = all(_is_whole(value) or float(f"{value:.2g}") == value for value in distinct)
    apart = all(b / a >= 1.5 for a, b in pairwise(distinct))
    if len(distinct) <= FEW and short and apart:
        return distinct
    decades = math.log10(distinct[-1] / distinct[0])
    digits = next(digits for least, digits in DIGITS if decades >= least)
    powers = range(math.floor(math.log10(distinct[0])), math.ceil(math.log10(distinct[-1])) + 1)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in digits]
    ticks = [int(tick) if _is_whole(tick) else tick for tick in ticks if distinct[0] <= tick <= distinct[-1]]
    return ticks[:: math.ceil(len(ticks) / MOST_TICKS)] if ticks else distinct


def page_width() -> alt.Parameter:
    """The pixels there are for the legend, which a page and a figure set."""
    return alt.param(name="page_width", value=FIGURE_WIDTH)


def either(chosen: alt.Parameter, inside: float, outside: float) -> Any:
    """One of two values, by what a reader has chosen."""
    return alt.condition(chosen, alt.value(inside), alt.value(outside))


def tooltip(titles: dict[str, str | None], texts: tuple[str, ...] = ("name", "series")) -> alt.TooltipValue:
    """Titles and values under the pointer, as an expression in which every title is quoted.

    Vega-Lite's tooltips quote no backslash, and lose texts where the nearest point is sought.
    """

    def line(key: str, title: str) -> str:
        value = f"(datum.datum || datum)[{json.dumps(key)}]"
        digits = f"format({value}, abs({value}) < 1000 ? '.4~g' : ',.0f')"
        number = f"(isValid({value}) ? {digits} : '{NOTHING}')"
        return f"{json.dumps(title)}: {value if key in texts else number}"

    # A title that comes twice is refused by Vega's parser: a space at its end tells the second from the first.
    lines: dict[str, str] = {}
    for key, title in titles.items():
        if title is not None:
            unique = one_line(title)
            while unique in lines:
                unique += " "
            lines[unique] = line(key, unique)
    return alt.TooltipValue(alt.ExprRef(f"{{{', '.join(lines.values())}}}"))


def _is_whole(value: float) -> bool:
    return float(value).is_integer()


def _marks(groups: Sequence[str], kinds: Sequence[Any]) -> list[Any]:
    """A kind for each series; where a colour comes again, it comes with another kind."""
    count = len(ON_LIGHT)
    return [kinds[(i % count + i // count) % len(kinds)] for i in range(len(groups))]
