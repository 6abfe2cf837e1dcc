"""The tab "The RNN at work"."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gradio as gr

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.explore.readings import MOST_CHARACTERS, MOST_TOKENS, Texts
from softmax_rnn.explore.source import START
from softmax_rnn.explore.tabs import LIVE, NARROWEST, ONCE, in_one_line, playable, session, whole

PAUSE = 0.12
"""Every token is shown for at least this many seconds."""
FIRST = "taylor_2"


def watchable() -> list[tuple[str, str]]:
    """Titles and names for the menu. A text is short: families that keep 64 keys are shown with 8."""
    names = (name.replace("_64", "_8") if VARIANTS[name].structure else name for name in playable())
    return [(VARIANTS.short(name), name) for name in names]


def rnn_tab(texts: Texts) -> None:
    """Plays a text through an attention on one head of the model."""
    with gr.Row():
        text = gr.Textbox(START, label=f"Text, up to {MOST_TOKENS} tokens", max_length=MOST_CHARACTERS, scale=3)
        variant = gr.Dropdown(
            watchable(),
            value=FIRST,
            label="Attention (a family takes any number: window_5)",
            allow_custom_value=True,
            elem_id="rnn-variant",
        )
    with gr.Row():
        layer = gr.Number(0, label="Layer", precision=0, minimum=0, elem_id="rnn-layer")
        head = gr.Number(0, label="Head", precision=0, minimum=0, elem_id="rnn-head")
        token = gr.Slider(1, 2, 1, step=1, label="Token", elem_id="rnn-token", scale=2)
        start = gr.Button("Play", variant="primary", elem_id="rnn-play", min_width=90)
        pause = gr.Button("Pause", elem_id="rnn-pause", min_width=90)
    shown = gr.HTML("<p class='note'>Play shows the state after every token.</p>", elem_id="rnn-frame")
    with gr.Row():
        with gr.Column(min_width=240):
            state = gr.HTML(elem_id="rnn-state")
        with gr.Column(scale=2, min_width=NARROWEST):
            charts = gr.HTML(elem_id="rnn-curves")
    controls = [text, layer, head, variant, token]

    def steps(page: str, text: str, layer: Any, head: Any, variant: str) -> Any:
        read = texts.get(page, text)
        from softmax_rnn.explore.rnn_view import played  # torch, once the model is there

        return played(read, whole(layer, "layer"), whole(head, "head"), str(variant))

    @in_one_line(4)
    def run(text: str, layer: Any, head: Any, variant: str, token: Any, request: gr.Request) -> Iterator[Any]:
        this = session(request)
        done = steps(this, text, layer, head, variant)
        from softmax_rnn.explore.rnn_view import curves, frame

        count, token = len(done.steps), whole(token, "token")
        first = token if 1 <= token < count else 1
        yield *frame(done, first), curves(done), gr.Slider(maximum=count, value=first)
        for place in range(first + 1, count + 1):
            time.sleep(PAUSE)
            if texts.closed(this):
                return
            yield *frame(done, place), gr.skip(), place

    @in_one_line(2)
    def show(text: str, layer: Any, head: Any, variant: str, token: Any, request: gr.Request) -> Any:
        done = steps(session(request), text, layer, head, variant)
        from softmax_rnn.explore.rnn_view import frame

        return frame(done, whole(token, "token"))

    playing = start.click(run, controls, [shown, state, charts, token], **ONCE)
    pause.click(None, None, None, cancels=[playing], api_visibility="private")
    token.input(show, controls, [shown, state], cancels=[playing], **LIVE)
