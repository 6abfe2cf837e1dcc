"""The loss of rows: cross entropy at the targets that count.

    loss(i, t) = − log softmax(logits[i, t])[targets[i, t]],    0 where the target is not counted

>>> import torch
>>> losses = token_losses(torch.zeros(1, 2, 4), torch.tensor([[3, IGNORED]]))
>>> losses.exp().round(decimals=3).tolist()                             # 4 tokens alike; the second is not counted
[[4.0, 1.0]]
"""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from softmax_rnn.data.rows import IGNORED


def token_losses(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """The loss at every position, in float32."""
    flat = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="none")
    return flat.view(targets.shape)


def loss_sum(logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """The losses of all counted targets, added."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="sum")


def counted(targets: Int[Tensor, "B T"]) -> Int[Tensor, ""]:
    """How many targets count."""
    return (targets != IGNORED).sum()
