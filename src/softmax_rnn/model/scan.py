"""A gated running sum of keys and values that restarts with each chunk: the recurrence of RAT.

x̃_t = g_t ⊙ x̃_{t−1} + (1 − g_t) ⊙ x_t,   g = σ(W h + b),   x̃ before the beginning of a chunk is 0
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import initialization as init

from softmax_rnn.model.positions import positions_of


class ChunkScan(nn.Module):
    """Keys and values side by side, both with the same gate; the last sums are the tail that the next piece needs.

    >>> scan = ChunkScan(hidden_size=8, channels=4, length=3)
    >>> hidden, k, v = torch.randn(1, 5, 8), torch.randn(1, 5, 4), torch.randn(1, 5, 4)
    >>> whole = scan(hidden, k, v)[0]
    >>> first, _, tail = scan(hidden[:, :2], k[:, :2], v[:, :2])
    >>> rest, _, _ = scan(hidden[:, 2:], k[:, 2:], v[:, 2:], tail=tail, lengths=torch.tensor([2]))
    >>> torch.allclose(torch.cat([first, rest], 1), whole, atol=1e-6)
    True
    """

    def __init__(self, hidden_size: int, channels: int, length: int) -> None:
        super().__init__()
        self.length = length
        self.gate = nn.Linear(hidden_size, channels)
        self.reset_bias()

    @torch.no_grad()
    def reset_bias(self) -> None:
        """b = log U(1, L − 1): channels remember between one and all positions of a chunk."""
        init.copy_(self.gate.bias, torch.log(1 + max(self.length - 2, 0) * torch.rand(self.gate.out_features)))

    def forward(
        self,
        hidden: Float[Tensor, "B T hidden"],
        k: Float[Tensor, "B T C"],
        v: Float[Tensor, "B T C"],
        *,
        key_mask: Bool[Tensor, "B T"] | None = None,
        segment_ids: Int[Tensor, "B T"] | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        tail: Float[Tensor, "B C2"] | None = None,
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B T C"], Float[Tensor, "B C2"]]:
        """Both, and the tail; ``lengths`` are the real positions of the past, padding leaves the sums as they are."""
        batch, time = hidden.shape[:2]
        at = positions_of(
            batch, time, key_mask=key_mask, segment_ids=segment_ids, lengths=lengths, device=hidden.device
        ).expand(batch, -1)
        gate = torch.sigmoid(self.gate(hidden).float()).repeat(1, 1, 2)
        x = (1 - gate) * torch.cat([k, v], -1).float()
        begins = at % self.length == 0
        if key_mask is not None:
            begins = begins & key_mask
            gate, x = gate.masked_fill(~key_mask[..., None], 1), x.masked_fill(~key_mask[..., None], 0)
        gate = gate.masked_fill(begins[..., None], 0)
        before = torch.zeros_like(x[:, :1]) if tail is None else tail.float()[:, None]
        gate, x = torch.cat([torch.ones_like(before), gate], 1), torch.cat([before, x], 1)
        sums = _scanned(gate, x, self.length if key_mask is None else time + 1)
        new_k, new_v = sums[:, 1:].to(k.dtype).chunk(2, -1)
        return new_k, new_v, sums[:, -1].clone(memory_format=torch.contiguous_format)


def _scanned(gate: Float[Tensor, "B T C"], x: Float[Tensor, "B T C"], most: int) -> Float[Tensor, "B T C"]:
    """y_t = gate_t · y_{t−1} + x_t by doubling; one of every ``most`` gates is 0, padding does not count among them."""
    reach, place = 1, torch.arange(x.shape[1], device=x.device)[:, None]
    while reach < most:
        x = x + gate * x.roll(reach, 1).masked_fill(place < reach, 0)
        gate = gate * gate.roll(reach, 1).masked_fill(place < reach, 0)
        reach *= 2
    return x
