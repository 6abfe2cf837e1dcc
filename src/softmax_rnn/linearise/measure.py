"""What is measured after each stage: the loss on each held-out text, also by position and by part; decoding."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from softmax_rnn.analysis.near_far import BOTH, by_part, near_far_modules
from softmax_rnn.attention import nonpositive
from softmax_rnn.data.rows import Row
from softmax_rnn.linearise.models import RowReader
from softmax_rnn.model.cache import SpecCache
from softmax_rnn.model.convert import specs_of
from softmax_rnn.train.evaluation import evaluate

STEPS = 8
"""The number of tokens that are timed."""


def losses(model: PreTrainedModel, texts: dict[str, list[Row]]) -> list[dict[str, Any]]:
    """A record for each text."""
    records = []
    for name, rows in texts.items():
        with nonpositive.counted() as count:
            one = evaluate(RowReader(model), rows, batch_size=1, device=model.device)
        records.append(
            {
                "text": name,
                "loss": one.loss if math.isfinite(one.loss) else None,
                "tokens": one.tokens,
                "by_position": list(one.by_position),
                "nonpositive_row_sums": count.row_sums,
            }
        )
    return records


def losses_by_part(model: PreTrainedModel, texts: dict[str, list[Row]]) -> dict[str, list[dict[str, Any]]]:
    """The losses of the model, and of one with near-and-far layers also those with each of the two parts alone."""
    modules = near_far_modules(model)
    return by_part(modules, lambda: losses(model, texts)) if modules else {BOTH: losses(model, texts)}


@torch.no_grad()
def decoding(model: PreTrainedModel, contexts: Sequence[int]) -> list[dict[str, Any]]:
    """The time of a token after each context, and the bytes of the state; the tokens do not matter."""
    records = []
    for context in contexts:
        cache, times = SpecCache(specs_of(model)), []
        ids = torch.arange(context, device=model.device)[None] % model.config.vocab_size
        with nonpositive.counted():
            model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            for _ in range(STEPS):
                began = time.perf_counter()
                model(input_ids=ids[:, :1], past_key_values=cache, use_cache=True)
                times.append(time.perf_counter() - began)
        records.append({"context": context, "seconds": sorted(times)[STEPS // 2], "bytes": cache.state_bytes()})
    return records
