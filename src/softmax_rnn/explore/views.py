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
    alt: str = "",
) -> str:
    """Tokens, each shaded by its weight, ``largest`` the strongest: blue above 0, orange and underlined below.

    ``alt`` is what a screen reader says of the shades.
    """
    words = []
    for place, token in enumerate(tokens):
        weight = weights[place] if place < len(weights) else 0.0
        text = escape(token.replace("\n", "⏎"))
        number = f"{weight:.4f}" if math.isfinite(weight) else "not a number"
        shade = min(abs(weight) / largest, 1.0) * STRONGEST if math.isfinite(weight) else 0.0
        red, green, blue = BLUE if weight >= 0 else ORANGE
        kinds = "word" + (" below" if weight < 0 else "") + (" chosen" if place == chosen else "")
        style = f"background:rgba({red},{green},{blue},{shade:.3f})"
        words.append(f'<span class="{kinds}" style="{style}" title="{text}: {number}">{text}</span>')
    name = f"<figcaption>{escape(title)}</figcaption>" if title else ""
    label = f' aria-label="{escape(alt)}"' if alt else ""
    return f'<figure class="words"{label}>{name}<p>{"".join(words)}</p></figure>'


def picture_html(matrix: Any, title: str, alt: str, *, largest: float | None = None, row: int | None = None) -> str:
    """A matrix as a picture, a pixel per number: blue above 0, orange below; one row can be framed."""
    numbers = np.asarray(matrix, dtype=float)
    share = 100 / max(len(numbers), 1)
    frame = "" if row is None else f'<i style="top:{row * share:.3f}%;height:{share:.3f}%"></i>'
    image = f'<img src="{png_data(numbers, largest)}" alt="{escape(alt)}" title="{escape(alt)}">'
    return f'<figure class="map"><figcaption>{escape(title)}</figcaption><div>{image}{frame}</div></figure>'


def png_data(matrix: np.ndarray, largest: float | None = None) -> str:
    """The matrix as a PNG in a data address, as opaque as the root of each number; those not finite are grey.

    The paper of the page, light or dark, is 0. A few numbers are far larger than the rest, hence the root.
    """
    from PIL import Image

    known = np.isfinite(matrix)
    numbers = np.where(known, matrix, 0.0)
    top = largest if largest is not None else max(float(np.abs(numbers).max(initial=0.0)), 1e-12)
    pixels = np.empty((*matrix.shape, 4))
    pixels[..., :3] = np.where(numbers[..., None] >= 0, BLUE, ORANGE)
    pixels[..., 3] = 255 * np.sqrt(np.clip(np.abs(numbers) / top, 0, 1))
    pixels[~known] = (128, 128, 128, 255)
    memory = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8), "RGBA").save(memory, format="PNG")
    return "data:image/png;base64," + base64.b64encode(memory.getvalue()).decode()


def chart_html(chart: Any, alt: str, height: int = 320) -> str:
    """A chart that the page's script draws, in the style of the reports; ``alt`` is its alternative text."""
    spec = json.dumps(finite(chart if isinstance(chart, dict) else chart.to_dict(validate=False)))
    return (
        f'<div class="plot" role="img" aria-label="{escape(alt)}" style="min-height:{height}px"'
        f' data-chart="{escape(spec)}"></div>'
    )
