"""Colours of a page, light and dark, and the look of its charts made from the same colours.

A page states its colours once, as CSS variables, and its charts name the variables: the charts follow the page from
light to dark, and to paper, without being drawn again. Figures in files have the light colours themselves.

>>> vega_config(on_page)["axis"]["labelColor"], vega_config(in_file)["axis"]["labelColor"]
('var(--ink-soft)', '#545d68')
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

# Okabe and Ito's hues, in lights that stand out from the paper (contrast of 3 and more) and from each other, with the
# common colour blindnesses too (CIEDE2000 of 10 and more).
ON_LIGHT = ("#0072b2", "#c24100", "#079e6b", "#cc7aa7", "#ab910a", "#1b9af5", "#000000", "#7c7c7c", "#5a3d00")
ON_DARK = ("#2d9cff", "#e86f26", "#2ca473", "#d189bd", "#f2b134", "#8fd0f5", "#ffffff", "#a09f9e", "#fff540")

LIGHT = {
    "paper": "#ffffff",
    "panel": "#f5f6f8",
    "ink": "#1b2026",
    "ink-soft": "#545d68",
    "line": "#d5dae1",
    "grid": "#e8ebef",
    "accent": "#0b5aa8",
    "good": "#17683a",
    "bad": "#a5301a",
    "unsure": "#705600",
    **{f"series-{i}": colour for i, colour in enumerate(ON_LIGHT, start=1)},
}
DARK = {
    "paper": "#14171b",
    "panel": "#1d2127",
    "ink": "#e6e9ed",
    "ink-soft": "#a7b0bc",
    "line": "#3a424d",
    "grid": "#292f37",
    "accent": "#80b9ff",
    "good": "#72d49c",
    "bad": "#ff9d87",
    "unsure": "#e3c75f",
    **{f"series-{i}": colour for i, colour in enumerate(ON_DARK, start=1)},
}

# Pixels of a figure in a file, where a page would give its width.
FIGURE_WIDTH = 560
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def schema_version() -> str:
    """The version of Vega-Lite that Altair's charts are written in."""
    import altair as alt

    version = re.match(r"v(\d+\.\d+)", alt.SCHEMA_VERSION)
    assert version is not None
    return version[1]


def on_page(name: str) -> str:
    """The colour as the page's variable."""
    return f"var(--{name})"


def in_file(name: str) -> str:
    """The light colour itself, for a file."""
    return LIGHT[name]


def vega_config(colour: Callable[[str], str]) -> dict[str, Any]:
    """Vega-Lite's configuration: what every chart looks like, with colours by name."""
    text = {"labelFont": FONT, "titleFont": FONT, "labelColor": colour("ink-soft"), "titleColor": colour("ink")}
    sizes = {"labelFontSize": 12, "titleFontSize": 12.5, "titleFontWeight": 500}
    lines = {"domainColor": colour("line"), "tickColor": colour("line"), "gridColor": colour("grid")}
    return {
        "background": "transparent",
        "font": FONT,
        "axis": {
            **text,
            **sizes,
            **lines,
            "titlePadding": 10,
            "labelPadding": 5,
            "labelLimit": 320,
            "labelSeparation": 8,
            "maxExtent": 400,
            "labelFlush": False,
            "titleLimit": 420,
        },
        "axisX": {"tickCount": 8},
        "axisY": {"titleLimit": 300, "tickCount": 7},
        "legend": {
            **text,
            **sizes,
            "orient": "bottom",
            "labelLimit": 320,
            "symbolSize": 90,
            "symbolStrokeWidth": 2,
            "columnPadding": 22,
            "rowPadding": 4,
            "offset": 14,
        },
        "header": {**text, "labelFontSize": 13, "labelColor": colour("ink"), "labelFontWeight": 600, "labelLimit": 220},
        "title": {
            "font": FONT,
            "color": colour("ink"),
            "fontSize": 13,
            "fontWeight": 500,
            "anchor": "start",
            "offset": 12,
        },
        "facet": {"spacing": 32},
        "text": {"font": FONT, "color": colour("ink")},
        "view": {"stroke": None},
        "line": {"strokeWidth": 2, "strokeCap": "round"},
        "rule": {"color": colour("ink-soft")},
        "mark": {"color": colour("series-1")},
        "range": {"category": [colour(f"series-{i}") for i in range(1, len(ON_LIGHT) + 1)]},
    }
