"""The page: its tabs, its look and its ``<head>``."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from pathlib import Path

import gradio as gr
from gradio.themes import Base

from softmax_rnn.explore.models_tab import models_tab
from softmax_rnn.explore.order_tab import order_tab
from softmax_rnn.explore.parts_tab import parts_tab
from softmax_rnn.explore.readings import Texts
from softmax_rnn.explore.rnn_tab import rnn_tab
from softmax_rnn.explore.runs_tab import runs_tab
from softmax_rnn.explore.source import Others, Source
from softmax_rnn.explore.tabs import session
from softmax_rnn.report import theme

TITLE = "Softmax attention as a sum of RNNs"
WAITING = 64
"""Events that may wait in the queue; further ones are refused."""
AT_ONCE = 2
"""Events that are handled at the same time."""
MONOSPACE = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


def build(source: Source, folder: Path | None = None, others: Others | None = None) -> gr.Blocks:
    """The page for a model, the runs in a folder, and models to compare with the first."""
    texts = Texts(source)
    with gr.Blocks(analytics_enabled=False, title=TITLE, fill_width=True) as page:
        gr.HTML(f'<h1>{TITLE}</h1><p class="note">Model: <code>{escape(source.name)}</code></p>')
        with gr.Tabs():
            with gr.Tab("Order by order"):
                order_tab(texts, page)
            with gr.Tab("The RNN at work"):
                rnn_tab(texts)
            with gr.Tab("Take it apart"):
                parts_tab(page)
            with gr.Tab("Two models, one prompt"):
                models_tab(texts, others or Others())
            with gr.Tab("Runs"):
                runs_tab(folder, page)

        def closed(request: gr.Request) -> None:
            texts.forget(session(request))

        page.unload(closed)
    page.queue(max_size=WAITING, default_concurrency_limit=AT_ONCE, api_open=False)
    return page


def look() -> dict[str, object]:
    """Theme, style and ``<head>`` of the page; nothing is fetched from another server."""
    fonts = [one.strip().strip("'") for one in theme.FONT.split(",")]
    config = json.dumps(theme.vega_config(theme.on_page)).replace("<", "\\u003c")
    return {
        "theme": Base(font=fonts, font_mono=list(MONOSPACE)),
        "css": _style(),
        "head": (
            f'<script type="application/json" id="chart-config">{config}</script>'
            '<script type="module" src="explore.js"></script>'
        ),
    }


def _style() -> str:
    def colours(values: dict[str, str]) -> str:
        return "".join(f"--{name}:{colour};" for name, colour in values.items())

    style = files("softmax_rnn.explore").joinpath("explore.css").read_text(encoding="utf-8")
    return f":root {{ {colours(theme.LIGHT)} }} .dark {{ {colours(theme.DARK)} }}\n{style}"
