"""A text as one model reads it: its tokens, and the queries, keys and values of every layer.

What is kept is enough to take any head apart again and again without running the model.

>>> from transformers import LlamaConfig, LlamaForCausalLM
>>> config = LlamaConfig(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2)
>>> reading = read(LlamaForCausalLM(config), [1, 2, 3, 4])
>>> reading.layers, reading.heads, reading.head(1, 0).scores.shape
(2, 2, torch.Size([4, 4]))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Head:
    """One head: its queries with the scale of the scores, its keys and its values, in float64."""

    q: Float[Tensor, "T D"]
    k: Float[Tensor, "T D"]
    v: Float[Tensor, "T E"]

    @property
    def scores(self) -> Float[Tensor, "T T"]:
        """q_i·k_j, also of keys that the query does not see."""
        return self.q @ self.k.mT


@dataclass(frozen=True)
class Reading:
    """The queries, keys and values of all layers for one text."""

    qkv: tuple[tuple[Tensor, Tensor, Tensor], ...]

    @property
    def layers(self) -> int:
        return len(self.qkv)

    @property
    def heads(self) -> int:
        """How many query heads the first layer has."""
        return self.qkv[0][0].shape[0]

    @property
    def time(self) -> int:
        """How many tokens were read."""
        return self.qkv[0][0].shape[1]

    def head(self, layer: int, head: int) -> Head:
        if not 0 <= layer < self.layers:
            raise InputError(f"layer: expected 0 to {self.layers - 1}, got {layer}")
        q, k, v = self.qkv[layer]
        if not 0 <= head < q.shape[0]:
            raise InputError(f"head: expected 0 to {q.shape[0] - 1}, got {head}")
        shared = head // (q.shape[0] // k.shape[0])
        return Head(q[head].double(), k[shared].double(), v[shared].double())


def read(model: PreTrainedModel, token_ids: Sequence[int]) -> Reading:
    """Let the model read the tokens once, in one window."""
    from softmax_rnn.analysis.capture import read_windows

    kept: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def keep(layer: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        kept[layer] = q.detach().cpu().clone(), k.detach().cpu().clone(), v.detach().cpu().clone()

    with torch.no_grad():
        read_windows(model, token_ids, max(len(token_ids), 1), keep)
    return Reading(tuple(kept[layer] for layer in sorted(kept)))
