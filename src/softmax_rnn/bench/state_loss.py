"""The loss of a pretrained model against the bytes of its decoding state, without any training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from softmax_rnn.analysis.perplexity import counted, mean_loss, read_text, token_ids
from softmax_rnn.attention.parts import KeptKeys, NearFar, Window, taylor_score
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.bench.results import Claim, Results, Task
from softmax_rnn.model.cache import SpecCache, cache_bytes
from softmax_rnn.model.convert import convert, specs_of
from softmax_rnn.model.pretrained import load_pretrained, load_tokenizer

SINKS = 4
WIDTHS = (32, 64, 128)


@dataclass(frozen=True)
class StateRow:
    """A way to decode: its loss on the text, and the bytes that it keeps after it."""

    variant: str
    """The kind of structure: a line of the chart."""
    width: int | None
    loss: float
    state_bytes: int
    nonpositive: int
    """Row sums that were not positive."""


def ways(widths: tuple[int, ...] = WIDTHS) -> Iterator[tuple[str, int | None, AttentionSpec]]:
    """What is compared: softmax, windows without and with sinks, far states, kept keys, both.

    Far states are expanded at the mean of their keys: at 0, the scores of trained models are too large for low orders.
    """
    yield "softmax", None, AttentionSpec()
    yield "window without sinks", 64, AttentionSpec(structure=Window(64))
    for width in widths:
        yield "window", width, AttentionSpec(structure=Window(width, SINKS))
        for order in (1, 2):
            far = AttentionSpec(score=taylor_score(order), structure=NearFar(width, SINKS, centred=True))
            yield f"window, far of order {order}", width, far
        yield "kept keys", width, AttentionSpec(structure=KeptKeys(width, SINKS, kept=width))
        for order in (1, 2):
            kept = KeptKeys(width, SINKS, kept=width, centred=True)
            yield f"kept keys, far of order {order}", width, AttentionSpec(score=taylor_score(order), structure=kept)


class _Reader:
    """A model that is converted again and again, and its text."""

    def __init__(self, name: str, text: Path | None, tokens: int) -> None:
        self.ids = torch.tensor(token_ids(load_tokenizer(name), read_text(text), tokens + 1))
        self.model: Any = load_pretrained(name)

    @torch.no_grad()
    def row(self, kind: str, width: int | None, spec: AttentionSpec) -> StateRow:
        """The loss with the state that decoding has."""
        self.model = model = convert(self.model, spec).eval()
        cache = SpecCache(specs_of(model))

        def logits(start: int, window: torch.Tensor) -> torch.Tensor:
            return model(input_ids=window[None], past_key_values=cache, use_cache=True).logits[0]

        result, nonpositive = counted(lambda: mean_loss(logits, self.ids, len(self.ids) - 1))
        return StateRow(kind, width, result.loss, cache_bytes(cache), nonpositive)


def state_loss_tasks(name: str, text: Path | None, tokens: int, widths: tuple[int, ...] = WIDTHS) -> Iterator[Task]:
    """One task per way; the model is loaded by the first."""
    reader = cache(lambda: _Reader(name, text, tokens))

    def task(kind: str, width: int | None, spec: AttentionSpec) -> Task:
        title = kind if width is None else f"{kind}, {width}"

        def work(results: Results) -> None:
            row = reader().row(kind, width, spec)
            results.rows.append(asdict(row))
            results.claims.append(Claim(f"{title}: loss, with {row.state_bytes / 1e6:.2f} MB of state", row.loss, None))

        return Task(title, work)

    for one in ways(widths):
        yield task(*one)
