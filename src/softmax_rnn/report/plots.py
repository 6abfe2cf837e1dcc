"""Charts from records, in the look of the pages: lines, panels of lines, dots with intervals, heat maps.

A series has a colour and a shape, or a dash where points are many, so that no reader needs the colour: nine colours,
then the same colours with other shapes and dashes. A number that an axis cannot show (not finite, or not positive on a
logarithmic axis) leaves a gap.

>>> rows = [{"step": s, "loss": 3 / s, "variant": "softmax"} for s in (1, 2, 3)]
>>> chart = line_chart(rows, x="step", y=Axis("loss", "test loss, nats", log=True), series="variant")
>>> [layer["mark"]["type"] for layer in chart.to_dict()["layer"]]
['line', 'rule', 'point']
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any, Literal

import altair as alt

from softmax_rnn.errors import InputError
from softmax_rnn.report.cells import NOTHING
from softmax_rnn.report.chart_data import Axis, Records, axis, names, one_line, values
from softmax_rnn.report.theme import COLOURS, FIGURE_WIDTH

DASHES = ([1, 0], [7, 4], [2, 3], [9, 3, 2, 3])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
# Beyond as many points a line, shapes would hide the line: they show under the pointer only.
FEW_POINTS = 24
# Without Ctrl, which a pinch sends too, the wheel belongs to the page.
ZOOM = "wheel![event.ctrlKey || event.metaKey]"

Chart = alt.LayerChart | alt.FacetChart


def line_chart(
    rows: Records,
    *,
    x: str | Axis,
    y: str | Axis,
    series: str,
    low: str | None = None,
    high: str | None = None,
    height: int = 320,
) -> Chart:
    """One line a series, with a band from ``low`` to ``high`` if given; dragging moves, Ctrl and the wheel zoom.

    A click on a name of the legend singles its line out, further clicks add lines, a double click brings all back.
    """
    zoom = alt.selection_interval(name="zoom", bind="scales", zoom=ZOOM)
    lines = alt.layer(*_lines(rows, axis(x), axis(y), series, low, high))
    return lines.add_params(zoom, _page_width()).properties(width="container", height=height)


def panel_chart(
    rows: Records,
    *,
    x: str | Axis,
    y: str | Axis,
    series: str,
    panel: str,
    low: str | None = None,
    high: str | None = None,
    columns: int = 3,
    same_scale: bool = True,
    width: int = 220,
    height: int = 180,
) -> Chart:
    """The lines of :func:`line_chart` in panels, one a value of ``panel``, at most ``columns`` abreast; no zoom."""
    lines = alt.layer(*_lines(rows, axis(x), axis(y), series, low, high, panel)).properties(width=width, height=height)
    across = balanced(len(names(rows, panel)), columns)
    by_place = alt.EncodingSortField("place", op="min")
    panels = lines.facet(facet=alt.Facet("panel:N", title=None, sort=by_place), columns=across)
    panels = panels.add_params(_page_width(across * (width + 30)))
    return panels if same_scale else panels.resolve_scale(x="independent", y="independent")


def interval_chart(
    rows: Records,
    *,
    name: str,
    value: str | Axis,
    low: str,
    high: str,
    series: str | None = None,
    reference: float | None = None,
) -> Chart:
    """A dot with its interval for every name, names in the order of the rows, a dashed line at ``reference``."""
    across = axis(value)
    numbers = {"x": across, "low": replace(across, column=low), "high": replace(across, column=high)}
    data = alt.Data(values=values(rows, numbers, {"name": name, "series": series}))
    down, groups = names(rows, name), names(rows, series) if series else []
    y = alt.Y("name:N", title=None, scale=alt.Scale(domain=down), axis=alt.Axis(grid=True, ticks=False, domain=False))
    looks: dict[str, Any] = {"y": y, "color": alt.value(COLOURS[0])}
    shape: dict[str, Any] = {}
    if series:
        channels = _looks(groups)
        looks |= {"color": channels["color"], "yOffset": alt.YOffset("series:N", scale=alt.Scale(domain=groups))}
        shape = {"shape": channels["shape"]}
    titles = {"name": name, "series": series, "x": across.label, "low": low, "high": high}
    bars = alt.Chart(data).mark_rule(strokeWidth=2, aria=False)
    dots = alt.Chart(data).mark_point(filled=True, opacity=1, size=65, aria=False)
    layers = [
        bars.encode(x=_position(alt.X, "low", across), x2="high:Q", **looks),
        dots.encode(x=_position(alt.X, "x", across), tooltip=_tooltip(titles), **looks, **shape),
    ]
    if reference is not None:
        line = alt.Chart(alt.Data(values=[{"x": reference}])).mark_rule(strokeDash=[4, 3], aria=False)
        layers.insert(0, line.encode(x=_position(alt.X, "x", across)))
    height = len(down) * (22 * len(groups) + 10 if series else 30)
    return alt.layer(*layers).add_params(_page_width()).properties(width="container", height=max(60, height))


def heat_map(
    rows: Records,
    *,
    x: str | Axis,
    y: str | Axis,
    value: str | Axis,
    numbers: str | None = None,
    height: int | None = None,
) -> Chart:
    """A cell for each x and y, as light as its value is large; ``numbers``, a format such as ".2f", writes them in."""
    across, down, shade = axis(x), axis(y), axis(value)
    cells = values(rows, {"value": shade}, {"x": across.column, "y": down.column})
    columns, lines = names(rows, across.column), names(rows, down.column)
    base = alt.Chart(alt.Data(values=cells)).encode(
        x=alt.X(
            "x:N", title=across.label, scale=alt.Scale(domain=columns), axis=alt.Axis(labelAngle=0, labelOverlap=True)
        ),
        y=alt.Y("y:N", title=down.label, scale=alt.Scale(domain=lines), axis=alt.Axis(labelOverlap=True)),
    )
    scale = alt.Scale(scheme="viridis", type="log" if shade.log else "linear")
    legend = alt.Legend(title=shade.label, gradientLength=200, direction="horizontal", titleLimit=320)
    tooltip = _tooltip({"x": across.label, "y": down.label, "value": shade.label}, texts=("x", "y"))
    colour = alt.Color("value:Q", scale=scale, legend=legend)
    layers = [base.mark_rect(aria=False).encode(color=colour, tooltip=tooltip)]
    if numbers is not None:
        layers.append(_written(base, [cell["value"] for cell in cells], shade.log, numbers))
    narrowest = {"min_width": 60 + len(columns) * (12 if numbers is None else 34)}
    chart = alt.layer(*layers).properties(width="container", height=height or max(80, min(640, 22 * len(lines))))
    return chart.properties(usermeta=narrowest)


def _lines(
    rows: Records, x: Axis, y: Axis, series: str, low: str | None, high: str | None, panel: str | None = None
) -> list[alt.Chart]:
    """Layers: a band where there is one, lines, a rule and points under the pointer."""
    if (low is None) != (high is None):
        raise InputError(f"low and high of a chart: expected both or neither, got {low!r} and {high!r}")
    ends = {"low": low and replace(y, column=low), "high": high and replace(y, column=high)}
    numbers = {"x": x, "y": y} | {key: end for key, end in ends.items() if isinstance(end, Axis)}
    data = values(rows, numbers, {"series": series, "panel": panel})
    groups, panels = names(rows, series), names(rows, panel) if panel else [""]
    if panel:
        data = [row | {"place": panels.index(row["panel"])} for row in data]
    few = len(rows) <= FEW_POINTS * len(groups) * len(panels)
    looks = _looks(groups, "shape" if few else "strokeDash")
    colour = {"color": looks["color"]}
    chosen = alt.selection_point(name="legend", fields=["series"], bind="legend", toggle="true")
    near = alt.selection_point(
        name="near", fields=["x"], nearest=True, on="pointermove", clear="pointerout", empty=False
    )
    whole = all(row["x"] is None or float(row["x"]).is_integer() for row in data)
    bottom = alt.Axis(grid=False, tickMinStep=1) if whole else alt.Axis(grid=False)
    base = alt.Chart(alt.Data(values=data)).encode(x=_position(alt.X, "x", x, axis=bottom))
    line = base.mark_line(aria=False, clip=True).encode(
        y=_position(alt.Y, "y", y), opacity=_either(chosen, 1, 0.1), **(colour if few else looks)
    )
    places = base.transform_aggregate(count="count()", groupby=["x", "panel"] if panel else ["x"])
    rule = places.mark_rule(aria=False).encode(opacity=_either(near, 0.5, 0))
    titles = {"series": series, "x": x.label, "y": y.label, "low": low, "high": high}
    points = base.mark_point(filled=True, size=55, aria=False, clip=True).encode(
        y=_position(alt.Y, "y", y),
        opacity=_either(near, 1, 1 if few else 0),
        tooltip=_tooltip(titles),
        **(looks if few else colour),
    )
    layers = [line.add_params(chosen), rule, points.add_params(near)]
    if low is not None and high is not None:
        band = base.mark_area(aria=False, clip=True).encode(
            y=_position(alt.Y, "low", y), y2="high:Q", opacity=_either(chosen, 0.16, 0.02), **colour
        )
        layers.insert(0, band)
    return layers


def balanced(count: int, most: int) -> int:
    """Panels abreast: as many as allowed, but rows of nearly the same length.

    >>> balanced(4, 3), balanced(5, 3), balanced(2, 3)
    (2, 3, 2)
    """
    return math.ceil(count / math.ceil(count / most))


def _position(channel: Any, field: str, one: Axis, **options: Any) -> Any:
    """A position on an axis with room for marks at its ends; linear ones need not begin at 0."""
    scale = alt.Scale(type="log", nice=False, padding=8) if one.log else alt.Scale(zero=False, nice=False, padding=8)
    return channel(f"{field}:Q", title=one.label, scale=scale, **options)


def _page_width(width: int = FIGURE_WIDTH) -> alt.Parameter:
    """The pixels there are for the legend, which a page sets to its own."""
    return alt.param(name="page_width", value=width)


def _looks(groups: list[str], mark: Literal["strokeDash", "shape"] = "shape") -> dict[str, Any]:
    """Two channels of the series: nine colours, and dashes or shapes that differ where a colour comes again.

    The legend has as many columns as its longest name leaves room for.
    """
    kinds = DASHES if mark == "strokeDash" else SHAPES
    marks = [kinds[(i % len(COLOURS) + i // len(COLOURS)) % len(kinds)] for i in range(len(groups))]
    columns = alt.ExprRef(f"max(1, floor((page_width - 60) / {7 * min(max(map(len, groups)), 46) + 50}))")
    symbol = {"symbolType": "stroke", "symbolSize": 400} if mark == "strokeDash" else {}
    legend = alt.Legend(title=None, columns=columns, symbolOpacity=1, **symbol) if len(groups) > 1 else None
    channel = alt.StrokeDash if mark == "strokeDash" else alt.Shape
    return {
        "color": alt.Color("series:N", scale=alt.Scale(domain=groups), legend=legend),
        mark: channel("series:N", scale=alt.Scale(domain=groups, range=marks), legend=legend),
    }


def _either(chosen: alt.Parameter, inside: float, outside: float) -> Any:
    return alt.condition(chosen, alt.value(inside), alt.value(outside))


def _written(base: alt.Chart, shades: list[float | None], log: bool, text_format: str) -> alt.Chart:
    """The values in their cells: dark on the light half of the colours, light on the dark half."""
    known = [math.log(shade) if log else shade for shade in shades if shade is not None]
    middle = (min(known) + max(known)) / 2 if known else 0.0
    threshold = math.exp(middle) if log else middle
    ink = alt.condition(f"datum.value > {threshold!r}", alt.value("#000000"), alt.value("#ffffff"))
    return base.mark_text(fontSize=11, aria=False).encode(text=alt.Text("value:Q", format=text_format), color=ink)


def _tooltip(titles: dict[str, str | None], texts: tuple[str, ...] = ("name", "series")) -> alt.TooltipValue:
    """Titles and values under the pointer, as an expression in which every title is quoted.

    Vega-Lite's own tooltips quote no backslash, and lose texts where the nearest point is sought.
    """

    def line(key: str, title: str) -> str:
        value = f"(datum.datum || datum)[{json.dumps(key)}]"
        number = f"(isValid({value}) ? format({value}, '.5~g') : '{NOTHING}')"
        return f"{json.dumps(title)}: {value if key in texts else number}"

    # A title that comes twice is refused by Vega's parser: a space at its end tells the second from the first.
    lines: dict[str, str] = {}
    for key, title in titles.items():
        if title is not None:
            own = one_line(title)
            while own in lines:
                own += " "
            lines[own] = line(key, own)
    return alt.TooltipValue(alt.ExprRef(f"{{{', '.join(lines.values())}}}"))
