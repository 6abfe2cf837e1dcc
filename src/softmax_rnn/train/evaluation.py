"""The loss of rows, and how well a network predicts a table of them: every counted target once.

    loss(i, t) = − log softmax(logits[i, t])[targets[i, t]],    0 where the target is not counted
    loss = Σ losses / Σ counted targets        perplexity = exp(loss)        and the same for each position t of a row

>>> from types import SimpleNamespace
>>> guess = lambda input_ids: SimpleNamespace(logits=torch.zeros(*input_ids.shape, 4))
>>> rows = [{"input_ids": np.array([0, 1]), "targets": np.array([1, 2])}] * 3
>>> round(evaluate(guess, rows, batch_size=2).perplexity, 6)             # four tokens, all alike
4.0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from softmax_rnn.data.rows import IGNORED, Row, Rows, collate
from softmax_rnn.train.processes import Share, together_sum

BINS = 64
"""The loss by position is given for at most this many equal parts of a row."""


@dataclass(frozen=True)
class Evaluation:
    """The token-weighted mean loss in nats, its exponential, the share of right guesses, and the loss by position."""

    loss: float
    perplexity: float
    accuracy: float
    tokens: int
    by_position: tuple[float | None, ...]
    """The mean loss of each of up to `BINS` equal parts of the row; None where nothing is counted."""


def token_losses(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """The loss at every position, in float32, or in float64 where the logits are.

    >>> losses = token_losses(torch.zeros(1, 2, 4), torch.tensor([[3, IGNORED]]))
    >>> losses.exp().round(decimals=3).tolist()                         # 4 tokens alike; the second is not counted
    [[4.0, 1.0]]
    """
    return _cross_entropy(logits, targets, "none").view(targets.shape)


def loss_sum(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """The losses of all counted targets, added."""
    return _cross_entropy(logits, targets, "sum")


def _cross_entropy(logits: Tensor, targets: Tensor, reduction: str) -> Tensor:
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction=reduction)


def counted(targets: Int[Tensor, "B T"]) -> Int[Tensor, ""]:
    """How many targets count."""
    return (targets != IGNORED).sum()


def evaluate(
    network: Callable[..., Any],
    rows: Rows | Sequence[Row],
    *,
    batch_size: int,
    share: Share | None = None,
    device: torch.device | str = "cpu",
) -> Evaluation:
    """The network (input tensors → an object with ``logits``) on all rows.

    With a ``share`` each process computes its part, and all get the same answer. Rows have one length; with a
    ``batch_size`` of 1, later rows may be shorter than the first.
    """
    length = len(rows[0]["targets"])
    # Per position: losses, counted targets, right guesses.
    sums = torch.zeros(3, length, dtype=torch.float64)
    training = isinstance(network, nn.Module) and network.training
    if isinstance(network, nn.Module):
        network.eval()
    with torch.no_grad():
        for batch in _batches(rows, batch_size, share or Share()):
            part = _sums(network, {name: x.to(device) for name, x in batch.items()})
            sums[:, : part.shape[1]] += part
    if isinstance(network, nn.Module):
        network.train(training)
    if share is not None:
        sums = together_sum(sums.to(device)).cpu()
    return _evaluation(sums)


def _sums(network: Callable[..., Any], batch: dict[str, Tensor]) -> Tensor:
    targets = batch.pop("targets")
    logits = network(**batch).logits
    losses = token_losses(logits, targets)
    right = logits.argmax(-1) == targets
    parts = (losses, targets != IGNORED, right)
    return torch.stack([part.cpu().double().sum(0) for part in parts])


def _batches(rows: Rows | Sequence[Row], size: int, share: Share) -> Iterator[dict[str, Tensor]]:
    """The share of a process. All get equally many batches, as sharded networks must be called in step."""
    count = -(-len(rows) // share.processes)
    for start in range(0, count, size):
        chosen = []
        for place in range(start, min(start + size, count)):
            index = place * share.processes + share.rank
            row = rows[min(index, len(rows) - 1)]
            chosen.append(row if index < len(rows) else row | {"targets": np.full_like(row["targets"], IGNORED)})
        yield collate(chosen)


def _evaluation(sums: Tensor) -> Evaluation:
    losses, counts, right = sums
    tokens = int(counts.sum())
    loss = float(losses.sum() / tokens) if tokens else math.nan
    parts = zip(losses.tensor_split(min(BINS, len(losses))), counts.tensor_split(min(BINS, len(losses))), strict=True)
    by_position = tuple(float(part.sum() / n.sum()) if n.sum() else None for part, n in parts)
    perplexity = math.exp(loss) if loss < 700 else math.inf
    return Evaluation(loss, perplexity, float(right.sum() / tokens) if tokens else math.nan, tokens, by_position)
