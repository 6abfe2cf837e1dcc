"""The tab "Two models, one prompt": the original, and one converted or with another attention, token by token."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

import gradio as gr

from softmax_rnn.analysis.methods import METHODS, MOST_ORDERS, find_method, method_spec, nearest_order
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError
from softmax_rnn.explore.readings import MOST_CHARACTERS, Texts, token_ids
from softmax_rnn.explore.source import Loaded, Others
from softmax_rnn.explore.tabs import NARROWEST, ONCE, in_one_line, playable, session, whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from softmax_rnn.model.streaming import NextToken

PROMPT = "Once upon a time there was a small dog who"
MOST_NEW = 128
POLYNOMIALS = {f"{name}:": method for name, method in METHODS.items() if method.causal and name != "head"}
"""Polynomials that need no range measured beforehand; a slider sets their order."""
FIRST = "extreme_keys_squared:"
MODEL = "model:"
"""Begins the choice of a model of its own; the folder follows."""


def models_tab(texts: Texts, others: Others) -> None:
    """The prompt, the other model or its attention, and both continuations side by side."""
    kinds = [(f"model: {name}", MODEL + name) for name in others.names]
    kinds += [(f"polynomial: {method.title}", name) for name, method in POLYNOMIALS.items()]
    kinds += [(f"variant: {VARIANTS.short(name)}", name) for name in playable()]
    with gr.Row():
        prompt = gr.Textbox(PROMPT, label="Prompt", max_length=MOST_CHARACTERS, min_width=NARROWEST, elem_id="prompt")
        kind = gr.Dropdown(
            kinds, value=FIRST, label="The other model, or its attention", elem_id="other", min_width=NARROWEST
        )
    with gr.Row():
        order = gr.Slider(0, MOST_ORDERS, 10, step=1, label="Order of the polynomial", elem_id="other-order", scale=2)
        most = gr.Slider(1, MOST_NEW, 24, step=1, label="New tokens", elem_id="new-tokens", scale=2)
        start = gr.Button("Continue", variant="primary", elem_id="generate", min_width=90)
        stop = gr.Button("Stop", elem_id="generate-stop", min_width=90)
    with gr.Row():
        with gr.Column(min_width=NARROWEST):
            first = gr.HTML(elem_id="first-model")
        with gr.Column(min_width=NARROWEST):
            second = gr.HTML(elem_id="second-model")

    @in_one_line(2)
    def run(prompt: str, kind: str, order: Any, most: Any, request: gr.Request) -> Iterator[Any]:
        this, count = session(request), whole(most, "new tokens")
        if not 1 <= count <= MOST_NEW:
            raise InputError(f"new tokens: expected 1 to {MOST_NEW}, got {count}")
        one, chosen = texts.source.get(), str(kind)
        if chosen.startswith(MODEL):
            other, title = others.get(chosen.removeprefix(MODEL)), chosen.removeprefix(MODEL)
        else:
            title, spec = other_attention(chosen, whole(order, "order"))
            with one.lock:
                other = replace(one, model=converted(one.model, spec))
        for pair in continuations([(texts.source.name, one), (title, other)], str(prompt), count):
            if texts.closed(this):
                return
            yield pair

    running = start.click(run, [prompt, kind, order, most], [first, second], **ONCE)
    stop.click(None, None, None, cancels=[running], api_visibility="private")


def other_attention(kind: str, order: int) -> tuple[str, AttentionSpec]:
    """The attention of the other model and its title: a polynomial of the given order, or a row of the table."""
    if kind not in POLYNOMIALS:
        return VARIANTS.short(kind), VARIANTS[kind]
    name = kind.removesuffix(":")
    title, shown = find_method(name).title, nearest_order(name, order)
    if shown != order:
        raise InputError(f"order: {title} has no order {order}; the nearest is {shown}")
    return f"{title}, order {order}", method_spec(name, shown)


def continuations(models: Sequence[tuple[str, Loaded]], prompt: str, most: int) -> Iterator[tuple[str, ...]]:
    """HTML of the continuations, updated after every token."""
    from softmax_rnn.analysis.perplexity import counted_perplexity
    from softmax_rnn.model.streaming import stream

    sides: list[_Side] = []
    ids = token_ids(models[0][1].tokenizer, prompt)
    for title, loaded in models:
        if token_ids(loaded.tokenizer, prompt) != ids:
            raise InputError(f"model: {title} reads the prompt as other tokens, so the two cannot be compared")
        with loaded.lock:
            loss = counted_perplexity(loaded.model, ids, len(ids))[0].loss
        sides.append(_Side(title, loaded, loss, stream(loaded.model, ids, most)))
    yield tuple(side.html() for side in sides)
    while not all(side.ended for side in sides):
        for side in sides:
            side.step()
            yield tuple(side.html() for side in sides)


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

    def __init__(self, title: str, loaded: Loaded, loss: float, coming: Iterator[NextToken]) -> None:
        self.title, self.loaded, self.loss, self.coming = title, loaded, loss, coming
        self.tokens: list[NextToken] = []
        self.ended = False

    def step(self) -> None:
        with self.loaded.lock:
            token = None if self.ended else next(self.coming, None)
        if token is None:
            self.ended = True
        else:
            self.tokens.append(token)

    def html(self) -> str:
        """Its tokens, each with its probability in per cent, and its numbers."""
        words = []
        for one in self.tokens:
            text = escape(str(self.loaded.tokenizer.decode([one.token])).replace("\n", "⏎"))
            shade = f"background:rgba(0,114,178,{0.5 * one.probability:.3f})"
            words.append(f'<ruby class="word" style="{shade}">{text}<rt>{100 * one.probability:.0f}</rt></ruby>')
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
