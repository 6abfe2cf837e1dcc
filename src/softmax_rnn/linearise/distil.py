"""Stage 3: the whole model learns the original's predictions.

loss = Σ_t KL( softmax(original's logits) ‖ softmax(logits) )        over counted positions
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from softmax_rnn.data.rows import IGNORED
from softmax_rnn.linearise.models import RowReader
from softmax_rnn.train.batches import Batch
from softmax_rnn.train.objective import Objective


class Imitation(Objective):
    """KL to the logits of the original; on the test side the loss of the next token is measured, as always."""

    def __init__(self, original: RowReader) -> None:
        self.original = original

    def loss_sum(self, network: Callable[..., Any], batch: Batch) -> Tensor:
        """One pass of the original, one of the network."""
        inputs = {name: x for name, x in batch.items() if name != "targets"}
        with torch.no_grad():
            wanted = self.original(**inputs).logits
        return divergence_sum(network(**inputs).logits, wanted, batch["targets"] != IGNORED)


def divergence_sum(logits: Tensor, wanted: Tensor, counted: Tensor) -> Tensor:
    """Σ over counted positions of KL(softmax(wanted) ‖ softmax(logits)), in float32 at least.

    >>> same = torch.randn(1, 3, 5)
    >>> float(divergence_sum(same, same + 1, torch.ones(1, 3, dtype=torch.bool))) < 1e-5
    True
    """
    logs = logits[counted].to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    aim = wanted[counted].to(logs.dtype).log_softmax(-1)
    return nn.functional.kl_div(logs, aim, reduction="sum", log_target=True)
