"""The tab "Two models, one prompt": the original and one with another attention, token by token."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

import gradio as gr

from softmax_rnn.analysis.methods import METHODS, MOST_ORDERS, find_method, method_spec, nearest_order
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError
from softmax_rnn.explore.page import ONCE, in_one_line, playable, session, whole
from softmax_rnn.explore.source import Loaded
from softmax_rnn.explore.texts import MOST_CHARACTERS, Texts, token_ids

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from softmax_rnn.model.streaming import NextToken

PROMPT = "Once upon a time there was a small dog who"
MOST_NEW = 128
POLYNOMIALS = {f"{name}:": method for name, method in METHODS.items() if method.causal and name != "head"}
"""Polynomials that need no range measured beforehand; a slider sets their order."""


def models_tab(texts: Texts) -> None:
    """The prompt, the other model's attention, and both continuations side by side."""
    kinds = [(f"exp as a polynomial: {method.title}", name) for name, method in POLYNOMIALS.items()]
    kinds += [(f"variant: {VARIANTS.short(name)}", name) for name in playable()]
    with gr.Row():
        prompt = gr.Textbox(PROMPT, label="Prompt", max_length=MOST_CHARACTERS, scale=2, elem_id="prompt")
        kind = gr.Dropdown(kinds, value="extreme_keys_squared:", label="The other model's attention", elem_id="other")
    with gr.Row():
        order = gr.Slider(0, MOST_ORDERS, 10, step=1, label="Order of the polynomial", elem_id="other-order")
        most = gr.Slider(1, MOST_NEW, 24, step=1, label="New tokens", elem_id="new-tokens")
        start = gr.Button("Continue", variant="primary", elem_id="generate", min_width=90)
        stop = gr.Button("Stop", elem_id="generate-stop", min_width=90)
    with gr.Row():
        first = gr.HTML(elem_id="first-model")
        second = gr.HTML(elem_id="second-model")

    @in_one_line(2)
    def run(prompt: str, kind: str, order: Any, most: Any, request: gr.Request) -> Iterator[Any]:
        this, count = session(request), whole(most, "new tokens")
        if not 1 <= count <= MOST_NEW:
            raise InputError(f"new tokens: expected 1 to {MOST_NEW}, got {count}")
        spec = other_spec(str(kind), whole(order, "order"))
        for left, right in continuations(texts.source.get(), str(prompt), spec, count):
            if texts.closed(this):
                return
            yield left, right

    running = start.click(run, [prompt, kind, order, most], [first, second], **ONCE)
    stop.click(None, None, None, cancels=[running], api_visibility="private")


def other_spec(kind: str, order: int) -> AttentionSpec:
    """The attention of the other model: a polynomial of the given order, or a row of the table."""
    if kind not in POLYNOMIALS:
        return VARIANTS[kind]
    name = kind.removesuffix(":")
    shown = nearest_order(name, order)
    if shown != order:
        raise InputError(f"order: {find_method(name).title} has no order {order}; the nearest is {shown}")
    return method_spec(name, shown)


def continuations(loaded: Loaded, prompt: str, spec: AttentionSpec, most: int) -> Iterator[tuple[str, str]]:
    """HTML of both continuations, updated after every token."""
    from softmax_rnn.analysis.perplexity import counted_perplexity
    from softmax_rnn.model.streaming import stream

    ids = token_ids(loaded.tokenizer, prompt)
    sides: list[_Side] = []
    with loaded.lock:
        for title, model in (("original", loaded.model), ("with the other attention", converted(loaded.model, spec))):
            loss = counted_perplexity(model, ids, len(ids))[0].loss
            sides.append(_Side(title, loss, stream(model, ids, most)))
    yield sides[0].html(loaded), sides[1].html(loaded)
    while not all(side.ended for side in sides):
        for side in sides:
            with loaded.lock:
                side.step()
            yield sides[0].html(loaded), sides[1].html(loaded)


def converted(model: PreTrainedModel, spec: AttentionSpec) -> PreTrainedModel:
    """The model with another attention; the original stays as it is."""
    from softmax_rnn.model.convert import WITH_LLAMA_BLOCKS, convert

    if spec.tensors:
        needed = ", ".join(spec.tensors)
        raise InputError(f"attention: {needed} would have to be trained first; choose one that needs only q, k and v")
    shares = type(model) in WITH_LLAMA_BLOCKS
    return convert(model if shares else copy.deepcopy(model), replace(spec)).eval()


class _Side:
    """One of the two models, with its tokens so far."""

    def __init__(self, title: str, loss: float, coming: Iterator[NextToken]) -> None:
        self.title, self.loss, self.coming = title, loss, coming
        self.tokens: list[NextToken] = []
        self.ended = False

    def step(self) -> None:
        token = None if self.ended else next(self.coming, None)
        if token is None:
            self.ended = True
        else:
            self.tokens.append(token)

    def html(self, loaded: Loaded) -> str:
        """Its tokens, shaded by their probability, and its numbers."""
        words = []
        for one in self.tokens:
            text = escape(str(loaded.tokenizer.decode([one.token])).replace("\n", "⏎"))
            shade = f"background:rgba(0,114,178,{0.5 * one.probability:.3f})"
            words.append(f'<span class="word" style="{shade}" title="{one.probability:.3f}">{text}</span>')
        facts = [f"loss on the prompt {self.loss:.3f}"]
        if self.tokens:
            mean = sum(one.probability for one in self.tokens) / len(self.tokens)
            facts += [f"{len(self.tokens)} tokens", f"mean probability {mean:.2f}"]
            facts += [f"state {self.tokens[-1].state_bytes:,} bytes"]
        later = sum(one.seconds for one in self.tokens[1:])
        if later:
            facts += [f"{(len(self.tokens) - 1) / later:.1f} tokens per second"]
        return (
            f'<p class="note">{escape(self.title)}</p><div class="stream" role="log">{"".join(words)}</div>'
            f'<p class="facts">{escape("; ".join(facts))}</p>'
        )
