"""What is measured after each stage: the loss on each held-out text, also by position, and what the parts are worth."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from softmax_rnn.attention import nonpositive
from softmax_rnn.attention.parts import Exp, NearFar, Window
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.data.rows import Row
from softmax_rnn.linearise.models import RowReader, attentions
from softmax_rnn.model.cache import SpecCache
from softmax_rnn.model.convert import specs_of
from softmax_rnn.train.evaluation import evaluate

STEPS = 8
"""Tokens whose time is measured."""


def losses(model: PreTrainedModel, texts: dict[str, list[Row]]) -> list[dict[str, Any]]:
    """A record for each text."""
    found = []
    for name, rows in texts.items():
        with nonpositive.counted() as count:
            one = evaluate(RowReader(model), rows, batch_size=1, device=model.device)
        found.append(
            {
                "text": name,
                "loss": one.loss if math.isfinite(one.loss) else None,
                "tokens": one.tokens,
                "by_position": list(one.by_position),
                "nonpositive_row_sums": count.row_sums,
            }
        )
    return found


def alone(spec: AttentionSpec) -> dict[str, AttentionSpec]:
    """A near-and-far attention with one of its halves: exp on the window alone, the polynomial on all keys alone."""
    if not isinstance(spec.structure, NearFar):
        return {}
    window = Window(spec.structure.width, spec.structure.sinks)
    near = replace(spec, score=Exp(scale=spec.score.scale), feature_map=None, structure=window)
    return {"window alone": near, "state alone": replace(spec, structure=None)}


def halves(model: PreTrainedModel, texts: dict[str, list[Row]]) -> list[dict[str, Any]]:
    """The losses with one half of each near-and-far layer; nothing for models that have none."""
    modules: list[Any] = attentions(model)
    specs = [alone(one.spec) for one in modules]
    found = []
    for name in dict.fromkeys(name for one in specs for name in one):
        with _with_specs(modules, [one.get(name) for one in specs]):
            found += [{"part": name, **{k: row[k] for k in ("text", "loss")}} for row in losses(model, texts)]
    return found


@contextmanager
def _with_specs(modules: Sequence[Any], specs: Sequence[AttentionSpec | None]) -> Iterator[None]:
    before = [(one.spec, one.parts) for one in modules]
    for one, spec in zip(modules, specs, strict=True):
        if spec is not None:
            one.spec, one.parts = spec, _Only(one.parts, spec)
    try:
        yield
    finally:
        for one, (spec, parts) in zip(modules, before, strict=True):
            one.spec, one.parts = spec, parts


class _Only(torch.nn.Module):
    """The tensors that a spec needs, of those that a module makes."""

    def __init__(self, parts: torch.nn.Module, spec: AttentionSpec) -> None:
        super().__init__()
        self.made, self.names = parts, spec.tensors

    def forward(self, hidden: torch.Tensor) -> dict[str, torch.Tensor]:
        """By name."""
        return {name: x for name, x in self.made(hidden).items() if name in self.names}


@torch.no_grad()
def decoding(model: PreTrainedModel, contexts: Sequence[int]) -> list[dict[str, Any]]:
    """The time of a token after a context, and the bytes that are carried; made-up tokens serve."""
    found = []
    for context in contexts:
        cache, times = SpecCache(specs_of(model)), []
        ids = torch.arange(context, device=model.device)[None] % model.config.vocab_size
        with nonpositive.counted():
            model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            for _ in range(STEPS):
                began = time.perf_counter()
                model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True)
                times.append(time.perf_counter() - began)
        found.append({"context": context, "seconds": sorted(times)[STEPS // 2], "bytes": cache.state_bytes()})
    return found
