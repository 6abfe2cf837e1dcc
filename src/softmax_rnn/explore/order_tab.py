"""The tab "Order by order"."""

from __future__ import annotations

from typing import Any

import gradio as gr

from softmax_rnn.analysis.methods import METHODS, MOST_ORDERS
from softmax_rnn.explore.readings import MOST_CHARACTERS, MOST_TOKENS, Text, Texts
from softmax_rnn.explore.source import START
from softmax_rnn.explore.tabs import LIVE, NARROWEST, ONCE, in_one_line, session, whole

FIRST_ORDER = 8


def order_tab(texts: Texts, page: gr.Blocks) -> None:
    """Controls on top, then words and maps, then two charts."""
    with gr.Row():
        text = gr.Textbox(START, label=f"Text, up to {MOST_TOKENS} tokens", max_length=MOST_CHARACTERS, scale=4)
        button = gr.Button("Read", variant="primary", scale=1, min_width=90)
    with gr.Row():
        layer = gr.Slider(0, 1, 0, step=1, label="Layer", elem_id="layer")
        head = gr.Slider(0, 1, 0, step=1, label="Head", elem_id="head")
        query = gr.Slider(1, 2, 2, step=1, label="Query token", elem_id="query")
    titles = [(method.title, name) for name, method in METHODS.items()]
    with gr.Row():
        method = gr.Dropdown(
            titles, value="taylor", label="Polynomial in place of exp", elem_id="method", min_width=NARROWEST
        )
        order = gr.Slider(0, MOST_ORDERS, FIRST_ORDER, step=1, label="Order", elem_id="order", min_width=NARROWEST)
    words = gr.HTML("<p class='note' role='status'>The model is being loaded …</p>", elem_id="order-words")
    with gr.Row():
        with gr.Column(min_width=NARROWEST):
            orders = gr.HTML(elem_id="order-bars")
        with gr.Column(min_width=NARROWEST):
            distance = gr.HTML(elem_id="order-distance")
    controls = [text, layer, head, query, method, order]
    shown = [words, orders, distance]

    def asked(
        page: str, text: str, layer: float, head: float, query: float, method: str
    ) -> tuple[Text, int, int, int, str]:
        numbers = (whole(layer, "layer"), whole(head, "head"), whole(query, "query token") - 1)
        return texts.get(page, text), *numbers, str(method)

    def view(*asked: Any) -> tuple[str, str]:
        from softmax_rnn.explore.order_view import order_view

        return order_view(*asked)

    def distances(*asked: Any) -> str:
        from softmax_rnn.explore.order_view import distance_view

        return distance_view(*asked)

    @in_one_line(6)
    def read(text: str, layer: float, head: float, query: float, method: str, order: float, request: gr.Request) -> Any:
        reading = texts.get(session(request), text).reading
        layer, head = min(layer, reading.layers - 1), min(head, reading.heads - 1)
        this = asked(session(request), text, layer, head, reading.time, method)
        return (
            *view(*this, whole(order, "order")),
            distances(*this),
            gr.Slider(maximum=reading.layers - 1, value=layer),
            gr.Slider(maximum=reading.heads - 1, value=head),
            gr.Slider(maximum=reading.time, value=reading.time, label=f"Query token, 1 to {reading.time}"),
        )

    @in_one_line(3)
    def show(text: str, layer: float, head: float, query: float, method: str, order: float, request: gr.Request) -> Any:
        this = asked(session(request), text, layer, head, query, method)
        return *view(*this, whole(order, "order")), distances(*this)

    @in_one_line(2)
    def slide(
        text: str, layer: float, head: float, query: float, method: str, order: float, request: gr.Request
    ) -> Any:
        return view(*asked(session(request), text, layer, head, query, method), whole(order, "order"))

    for event in (page.load, button.click, text.submit):
        event(read, controls, [*shown, layer, head, query], **ONCE)
    for control in (layer, head, query, method):
        control.input(show, controls, shown, **LIVE)
    order.input(slide, controls, shown[:2], **LIVE)
