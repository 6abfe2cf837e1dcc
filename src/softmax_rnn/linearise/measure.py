"""What is measured after each stage: the loss on each held-out text, also by position, and what the parts are worth."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from softmax_rnn.analysis.near_far import near_far_modules, with_structures
from softmax_rnn.attention import nonpositive
from softmax_rnn.attention.parts import Alone
from softmax_rnn.data.rows import Row
from softmax_rnn.linearise.models import RowReader
from softmax_rnn.model.cache import SpecCache
from softmax_rnn.model.convert import specs_of
from softmax_rnn.train.evaluation import evaluate

ALONE = {"window alone": Alone.NEAR, "state alone": Alone.FAR}
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


def halves(model: PreTrainedModel, texts: dict[str, list[Row]]) -> list[dict[str, Any]]:
    """The losses with one half of each near-and-far layer; nothing for models that have none."""
    modules = near_far_modules(model)
    found = []
    for name, alone in ALONE.items() if modules else ():
        with with_structures(modules, alone):
            found += [{"part": name, "text": row["text"], "loss": row["loss"]} for row in losses(model, texts)]
    return found


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
