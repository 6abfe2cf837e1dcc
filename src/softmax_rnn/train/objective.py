"""What a run minimises, and what it measures on the test split: the next token, unless a job says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from softmax_rnn.data.rows import Row, Rows
from softmax_rnn.train.batches import Batch
from softmax_rnn.train.evaluation import evaluate, loss_sum
from softmax_rnn.train.processes import Share


class Objective:
    """Cross entropy of the next token. Another objective replaces one of the two methods, or both."""

    def loss_sum(self, network: Callable[..., Any], batch: Batch) -> Tensor:
        """The losses of a batch, added over its counted targets; ``network`` takes its tensors without them."""
        inputs = {name: x for name, x in batch.items() if name != "targets"}
        return loss_sum(network(**inputs).logits, batch["targets"])

    def measure(
        self, network: nn.Module, rows: Rows | Sequence[Row], batch_size: int, share: Share, device: torch.device
    ) -> dict[str, Any]:
        """What a line of metrics says about these rows, by name; ``test_loss`` is among it. All processes call."""
        result = evaluate(network, rows, batch_size=batch_size, share=share, device=device)
        return {
            "test_loss": result.loss,
            "test_perplexity": result.perplexity,
            "test_accuracy": result.accuracy,
            "test_tokens": result.tokens,
            "test_loss_by_position": list(result.by_position),
        }
