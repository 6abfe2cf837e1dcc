"""The token shift of RWKV-6: each projection reads its own mixture of a position and the one before it.

x̃ = x_t + (x_{t−1} − x_t) ⊙ (μ + tanh(x̂ A) B),   x̂ = x_t + (x_{t−1} − x_t) ⊙ μ̂        one μ and B per projection
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import initialization as init

from softmax_rnn.model.conv import earlier_inputs

RANK = 32
SHARPER = ("q", "output_gate")
"""Where μ starts closer to the position itself."""


class TokenShift(nn.Module):
    """The mixtures for ``targets``; the last position is the tail that the next piece needs.

    >>> shift = TokenShift(6, ("q", "k"), layer=0, layers=2)
    >>> x = torch.randn(1, 5, 6)
    >>> first, tail = shift(x[:, :2])
    >>> rest, tail = shift(x[:, 2:], tail=tail)
    >>> torch.allclose(torch.cat([first["k"], rest["k"]], 1), shift(x)[0]["k"])
    True
    """

    def __init__(self, width: int, targets: tuple[str, ...], layer: int, layers: int) -> None:
        super().__init__()
        self.targets = targets
        self.depth = layer / layers, layer / max(layers - 1, 1)
        self.common = nn.Parameter(torch.empty(width))
        self.mixes = nn.Parameter(torch.empty(len(targets), width))
        self.down = nn.Parameter(torch.empty(width, len(targets) * RANK))
        self.up = nn.Parameter(torch.empty(len(targets), RANK, width))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """As its authors start it: 1 − (c/width)^(1 − depth) over channels c, with A = 0."""
        done, along = self.depth
        place = torch.arange(self.common.shape[0], device="cpu") / self.common.shape[0]
        init.copy_(self.common, 1 - place ** (1 - done))
        rows = []
        for name in self.targets:
            started = place ** ((1 - done) * (0.5 if name in SHARPER else 1.0))
            rows.append(1 - started - (0.3 * along if name == "v" else 0.0))
        init.copy_(self.mixes, torch.stack(rows))
        init.zeros_(self.down)
        init.uniform_(self.up, -0.01, 0.01)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        key_mask: Bool[Tensor, "B T"] | None = None,
        segment_ids: Int[Tensor, "B T"] | None = None,
        tail: Float[Tensor, "B 1 C"] | None = None,
    ) -> tuple[dict[str, Float[Tensor, "B T C"]], Float[Tensor, "B 1 C"]]:
        """What each target reads, and the tail after it; padding counts as 0 for the positions after it."""
        (before,), tail = earlier_inputs(x, 1, key_mask, segment_ids, tail)
        change = before - x
        raw = torch.tanh((x + change * self.common) @ self.down).unflatten(-1, (len(self.targets), RANK))
        mixes = self.mixes + torch.einsum("btnr,nrc->btnc", raw, self.up)
        return {name: x + change * mixes[:, :, n] for n, name in enumerate(self.targets)}, tail
