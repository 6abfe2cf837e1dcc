"""A chart as files: HTML, SVG, PNG and PDF, in the light colours.

>>> from softmax_rnn.report.plots import line_chart
>>> chart = line_chart([{"step": 1, "loss": 2.0, "run": "a"}], x="step", y="loss", series="run")
>>> figure(chart, "Loss against the step.").to_dict()["title"]["text"]
['Loss against the step.']
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import altair as alt

from softmax_rnn.files import write_whole
from softmax_rnn.report.theme import FIGURE_WIDTH, in_file, schema_version, vega_config

FORMATS = ("html", "svg", "png", "pdf")
# Mean width of a letter of a title.
LETTER = 6.6


def figure(chart: Any, title: str = "") -> alt.TopLevelMixin:
    """The chart with colours, a width and a title."""
    spec = chart.to_dict()
    if spec.get("width") == "container":
        spec["width"] = max(FIGURE_WIDTH, spec.get("usermeta", {}).get("min_width", 0))
    width = spec.get("width", FIGURE_WIDTH)
    if "facet" in spec:
        width = spec["columns"] * (spec["spec"]["width"] + 30)
    for setting in spec.get("params", []):
        if setting["name"] == "page_width":
            setting["value"] = width
    if title:
        spec["title"] = {"text": textwrap.wrap(title, int(width / LETTER))}
    config = vega_config(in_file) | {"background": in_file("paper")}
    for part, values in spec.get("config", {}).items():
        config[part] = {**config.get(part, {}), **values} if isinstance(values, dict) else values
    spec["config"] = config
    return alt.Chart.from_dict(spec)


def save_chart(
    chart: Any, folder: Path, name: str, formats: tuple[str, ...] = FORMATS, *, title: str = ""
) -> list[Path]:
    """The chart in every format; the HTML needs no network."""
    whole: Any = figure(chart, title)
    svg = _svg(whole) if set(formats) - {"html"} else ""

    def write(path: Path) -> None:
        if path.suffix == ".html":
            path.write_text(_page(whole), encoding="utf-8")
        elif path.suffix == ".svg":
            path.write_text(svg, encoding="utf-8")
        else:
            path.write_bytes(_converted(svg, path.suffix))

    return [write_whole(folder / f"{name}.{ending}", write) for ending in formats]


def _svg(chart: Any) -> str:
    """The chart drawn once; PNG and PDF are made from it."""
    import vl_convert

    return vl_convert.vegalite_to_svg(chart.to_dict(validate=False), vl_version=schema_version())


def _converted(svg: str, ending: str) -> bytes:
    import vl_convert

    return vl_convert.svg_to_png(svg, ppi=144) if ending == ".png" else vl_convert.svg_to_pdf(svg)


def _page(chart: Any) -> str:
    """The chart as a page. Names in the data are data: no ``<`` of theirs reaches the page's markup."""
    html = chart.to_html(inline=True)
    begin = html.rindex("const spec = ")
    end = html.index("\n", begin)
    return html[:begin] + html[begin:end].replace("<", "\\u003c") + html[end:]
