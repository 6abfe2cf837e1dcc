"""Charts from records, in the look of the pages: lines, panels of lines, dots with intervals, heat maps.

A number that an axis cannot show (not finite, or not positive on a logarithmic axis) leaves a gap.

>>> rows = [{"step": s, "loss": 3 / s, "variant": "softmax"} for s in (1, 2, 3)]
>>> chart = line_chart(rows, x="step", y=Axis("loss", "test loss, nats", log=True), series="variant")
>>> [layer["mark"]["type"] for layer in chart.to_dict()["layer"]]
['line', 'rule', 'point']
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import altair as alt

from softmax_rnn.errors import InputError
from softmax_rnn.report.channels import dashes, either, looks, page_width, position, tooltip
from softmax_rnn.report.chart_data import Axis, Records, axis, names, values

# Beyond as many points per line, shapes would hide the line: they show under the pointer only.
FEW_POINTS = 24
# More names than these are set closer together.
MANY_NAMES = 12
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
    """One line per series, with a band from ``low`` to ``high`` if given; dragging moves, Ctrl and the wheel zoom.

    A click on a name of the legend singles its line out, further clicks add lines, a double click brings all back.
    """
    zoom = alt.selection_interval(name="zoom", bind="scales", zoom=ZOOM)
    lines = alt.layer(*_lines(rows, axis(x), axis(y), series, low, high))
    return lines.add_params(zoom, page_width()).properties(width="container", height=height)


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
    """The lines of :func:`line_chart` in panels, one per value of ``panel``, at most ``columns`` abreast; no zoom."""
    lines = alt.layer(*_lines(rows, axis(x), axis(y), series, low, high, panel)).properties(width=width, height=height)
    across = balanced(len(names(rows, panel)), columns)
    by_place = alt.EncodingSortField("place", op="min")
    panels = lines.facet(facet=alt.Facet("panel:N", title=None, sort=by_place), columns=across)
    panels = panels.add_params(page_width())
    return panels if same_scale else panels.resolve_scale(x="independent", y="independent")


def interval_chart(
    rows: Records,
    *,
    name: str,
    value: str | Axis,
    low: str | None = None,
    high: str | None = None,
    series: str | None = None,
    reference: float | None = None,
) -> Chart:
    """A dot for every name, with its interval if given, names in the order of the rows; a dashed line at ``reference``.

    Several series of the same name are drawn below each other.
    """
    across = axis(value)
    numbers = {"x": across} | _ends(across, low, high)
    data = values(rows, numbers, {"name": name, "series": series})
    down, groups = names(rows, name), names(rows, series) if series else [""]
    count = {one: sum(row["name"] == one for row in data) for one in down}
    placed = dict.fromkeys(down, 0)
    for row in data:
        placed[row["name"]] += 1
        row |= {"place": placed[row["name"]] / (count[row["name"]] + 1), "series": row.get("series", "")}
    most = max(count.values())
    size = 18 * most + 10 if most > 1 else 30 if len(down) <= MANY_NAMES else 22
    y = alt.Y("name:N", title=None, scale=alt.Scale(domain=down), axis=alt.Axis(grid=True, ticks=False, domain=False))
    looked = looks(groups)
    base = alt.Chart(alt.Data(values=data)).encode(
        y=y, color=looked["color"], yOffset=alt.YOffset("place:Q", scale=alt.Scale(domain=[0, 1]))
    )
    shown = [row[key] for row in data for key in numbers] + ([] if reference is None else [reference])
    titles = {"name": name, "series": series, "x": across.label, "low": low, "high": high}
    dots = base.mark_point(filled=True, opacity=1, size=65, aria=False)
    layers = [dots.encode(x=position(alt.X, "x", across, shown), tooltip=tooltip(titles), shape=looked["shape"])]
    if low is not None:
        bars = base.mark_rule(strokeWidth=2, aria=False)
        layers.insert(0, bars.encode(x=position(alt.X, "low", across, shown), x2="high:Q"))
    if reference is not None:
        line = alt.Chart(alt.Data(values=[{"x": reference}])).mark_rule(strokeDash=[4, 3], aria=False)
        layers.insert(0, line.encode(x=position(alt.X, "x", across, shown)))
    return alt.layer(*layers).add_params(page_width()).properties(width="container", height=max(60, size * len(down)))


def heat_map(rows: Records, *, x: str | Axis, y: str | Axis, value: str | Axis) -> Chart:
    """A cell for each x and y, as light as its value is large."""
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
    tooltips = tooltip({"x": across.label, "y": down.label, "value": shade.label}, texts=("x", "y"))
    colour = alt.Color("value:Q", scale=scale, legend=legend)
    # A stroke of the same colour closes the seams between cells.
    seams = {"stroke": alt.ExprRef("scale('color', datum.value)"), "strokeWidth": 0.6}
    chart = alt.layer(base.mark_rect(aria=False, **seams).encode(color=colour, tooltip=tooltips))
    return chart.properties(
        width="container",
        height=max(80, min(640, 22 * len(lines))),
        usermeta={"min_width": 60 + 12 * len(columns)},
    )


def _lines(
    rows: Records, x: Axis, y: Axis, series: str, low: str | None, high: str | None, panel: str | None = None
) -> list[alt.Chart]:
    """Layers: a band where there is one, lines, a rule and points under the pointer."""
    numbers = {"x": x, "y": y} | _ends(y, low, high)
    data = values(rows, numbers, {"series": series, "panel": panel})
    groups, panels = names(rows, series), names(rows, panel) if panel else [""]
    if panel:
        data = [row | {"place": panels.index(row["panel"])} for row in data]
    few = len(rows) <= FEW_POINTS * len(groups) * len(panels)
    looked = looks(groups, "shape" if few else "strokeDash")
    colour = {"color": looked["color"]}
    chosen = alt.selection_point(name="legend", fields=["series"], bind="legend", toggle="true")
    near = alt.selection_point(
        name="near", fields=["x"], nearest=True, on="pointermove", clear="pointerout", empty=False
    )
    heights = [row[key] for row in data for key in numbers if key != "x"]
    across = position(alt.X, "x", x, [row["x"] for row in data], grid=False)
    base = alt.Chart(alt.Data(values=data)).encode(x=across)
    line = base.mark_line(aria=False, clip=True).encode(
        y=position(alt.Y, "y", y, heights),
        opacity=either(chosen, 1, 0.1),
        strokeDash=dashes(groups) if few else looked["strokeDash"],
        **colour,
    )
    places = base.transform_aggregate(count="count()", groupby=["x", "panel"] if panel else ["x"])
    rule = places.mark_rule(aria=False).encode(opacity=either(near, 0.5, 0))
    titles = {"series": series, "x": x.label, "y": y.label, "low": low, "high": high}
    points = base.mark_point(filled=True, size=55, aria=False, clip=True).encode(
        y=position(alt.Y, "y", y, heights),
        opacity=either(near, 1, 1 if few else 0),
        tooltip=tooltip(titles),
        **(looked if few else colour),
    )
    layers = [line.add_params(chosen), rule, points.add_params(near)]
    if low is not None:
        band = base.mark_area(aria=False, clip=True).encode(
            y=position(alt.Y, "low", y, heights), y2="high:Q", opacity=either(chosen, 0.16, 0.02), **colour
        )
        layers.insert(0, band)
    return layers


def _ends(one: Axis, low: str | None, high: str | None) -> dict[str, Axis]:
    """The columns of an interval's ends, on the axis of what lies between."""
    if (low is None) != (high is None):
        raise InputError(f"low and high of a chart: expected both or neither, got {low!r} and {high!r}")
    return {} if low is None or high is None else {"low": replace(one, column=low), "high": replace(one, column=high)}


@contextmanager
def unchecked_charts() -> Iterator[None]:
    """Inside, charts are made without checking every part of them against the schema, which the tests do."""
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):
        yield


def balanced(count: int, most: int) -> int:
    """Panels abreast: as many as allowed, but rows of nearly the same length.

    >>> balanced(4, 3), balanced(5, 3), balanced(2, 3)
    (2, 3, 2)
    """
    return math.ceil(count / math.ceil(count / most))
