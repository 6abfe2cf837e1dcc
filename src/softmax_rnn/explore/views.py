"""Pieces of the page as HTML, every text escaped: shaded words, matrices as pictures, charts, a line about a problem.

>>> words_html(["a", "<b>"], [0.25, 0.75]).count("&lt;b&gt;")
2
>>> problem_html("text: expected some words, got none")
'<p class="problem" role="alert">text: expected some words, got none</p>'
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from softmax_rnn.files import finite

VIRIDIS = ("440154", "482878", "3e4989", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725")
"""Light is large: lightness is visible with every kind of colour vision."""
BLUE, ORANGE = (0, 114, 178), (194, 65, 0)
STRONGEST = 0.6
"""Opacity of the strongest shade: the word in front of it stays readable."""


def problem_html(text: str) -> str:
    """What was wrong, in one line."""
    return f'<p class="problem" role="alert">{escape(" ".join(str(text).split()))}</p>'


def note_html(text: str) -> str:
    """A line of text."""
    return f'<p class="note">{escape(text)}</p>'


def words_html(
    tokens: Sequence[str],
    weights: Sequence[float],
    title: str = "",
    *,
    chosen: int | None = None,
    largest: float = 1.0,
) -> str:
    """Tokens, each shaded by its weight, ``largest`` the strongest: blue above 0, orange and underlined below."""
    words = []
    for place, token in enumerate(tokens):
        weight = weights[place] if place < len(weights) else 0.0
        text = escape(token.replace("\n", "⏎"))
        alt = f"{weight:.4f}" if math.isfinite(weight) else "not a number"
        shade = min(abs(weight) / largest, 1.0) * STRONGEST if math.isfinite(weight) else 0.0
        red, green, blue = BLUE if weight >= 0 else ORANGE
        kinds = "word" + (" below" if weight < 0 else "") + (" chosen" if place == chosen else "")
        style = f"background:rgba({red},{green},{blue},{shade:.3f})"
        words.append(f'<span class="{kinds}" style="{style}" title="{text}: {alt}">{text}</span>')
    name = f"<figcaption>{escape(title)}</figcaption>" if title else ""
    return f'<figure class="words">{name}<p>{"".join(words)}</p></figure>'


def picture_html(matrix: Any, title: str, alt: str, *, signed: bool = False, largest: float | None = None) -> str:
    """A matrix as a picture, a pixel per number; ``signed`` has orange below 0 and blue above."""
    source = png_data(np.asarray(matrix, dtype=float), signed=signed, largest=largest)
    return (
        f'<figure class="map"><figcaption>{escape(title)}</figcaption>'
        f'<img src="{source}" alt="{escape(alt)}" title="{escape(alt)}"></figure>'
    )


def png_data(matrix: np.ndarray, *, signed: bool = False, largest: float | None = None) -> str:
    """The matrix as a PNG in a data address; numbers that are not finite are grey."""
    from PIL import Image

    known = np.isfinite(matrix)
    size = np.abs(np.where(known, matrix, 0.0))
    top = largest if largest is not None else max(float(size.max(initial=0.0)), 1e-12)
    part = np.clip(np.where(known, matrix, 0.0) / top, -1 if signed else 0, 1)
    pixels = _diverging(part) if signed else _viridis(part)
    pixels[~known] = (128, 128, 128)
    picture = Image.fromarray(pixels.astype(np.uint8), "RGB")
    memory = io.BytesIO()
    picture.save(memory, format="PNG")
    return "data:image/png;base64," + base64.b64encode(memory.getvalue()).decode()


def _viridis(part: np.ndarray) -> np.ndarray:
    table = np.array([[int(one[i : i + 2], 16) for i in (0, 2, 4)] for one in VIRIDIS], dtype=float)
    places = np.linspace(0, 1, len(table))
    return np.stack([np.interp(part, places, table[:, channel]) for channel in range(3)], -1)


def _diverging(part: np.ndarray) -> np.ndarray:
    strong = np.where(part[..., None] >= 0, np.array(BLUE, dtype=float), np.array(ORANGE, dtype=float))
    share = np.abs(part)[..., None]
    return 255 * (1 - share) + strong * share


def chart_html(chart: Any, alt: str, height: int = 320) -> str:
    """A chart that the page's script draws, in the style of the reports; ``alt`` is its alternative text."""
    spec = json.dumps(finite(chart if isinstance(chart, dict) else chart.to_dict(validate=False)))
    return (
        f'<div class="plot" role="img" aria-label="{escape(alt)}" style="min-height:{height}px"'
        f' data-chart="{escape(spec)}"></div>'
    )
