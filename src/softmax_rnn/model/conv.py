"""A short causal convolution, one filter a channel, that respects packed documents and continues from a tail.

y_t = act( Σ_{i<W} w_i ⊙ x_{t−i} + b )        x before the beginning of a document is 0
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import initialization as init
from transformers.activations import ACT2FN


def earlier_inputs(
    x: Float[Tensor, "B T C"],
    reach: int,
    key_mask: Bool[Tensor, "B T"] | None,
    segment_ids: Int[Tensor, "B T"] | None,
    tail: Float[Tensor, "B R C"] | None,
) -> tuple[list[Float[Tensor, "B T C"]], Float[Tensor, "B R C"]]:
    """x_{t−1} … x_{t−reach}, 0 for padding and other documents, and the last inputs for the piece that follows."""
    time = x.shape[1]
    if key_mask is not None:
        x = x.masked_fill(~key_mask[..., None], 0)
    joined = F.pad(x, (0, 0, reach, 0)) if tail is None else torch.cat([tail.to(x.dtype), x], dim=1)
    lagged = []
    for back in range(1, reach + 1):
        earlier = joined[:, reach - back : reach - back + time]
        if segment_ids is not None:
            same = F.pad(segment_ids[:, back:] == segment_ids[:, :-back], (min(back, time), 0))
            earlier = earlier * same[..., None]
        lagged.append(earlier)
    return lagged, joined[:, time:]


class ShortConv(nn.Module):
    """The convolution over ``channels``; the last W − 1 inputs are the tail that the next piece needs.

    >>> conv = ShortConv(channels=6, width=3)
    >>> x = torch.randn(1, 5, 6)
    >>> first, tail = conv(x[:, :2])
    >>> rest, tail = conv(x[:, 2:], tail=tail)
    >>> torch.allclose(torch.cat([first, rest], 1), conv(x)[0])
    True
    """

    def __init__(self, channels: int, width: int, activation: str | None = None, bias: bool = False) -> None:
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.empty(channels, width))
        self.bias = nn.Parameter(torch.empty(channels)) if bias else None
        self.activation = ACT2FN[activation] if activation is not None else nn.Identity()
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """U(±1/√W), torch's own for a filter of W taps: N(0, 0.02) would shrink q, k and v to nothing."""
        bound = 1 / math.sqrt(self.width)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        key_mask: Bool[Tensor, "B T"] | None = None,
        segment_ids: Int[Tensor, "B T"] | None = None,
        tail: Float[Tensor, "B L C"] | None = None,
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B L C"]]:
        """The output and the tail after it; padding counts as 0 for the positions after it."""
        # Padding still sees itself: a query of zeros would make a row sum of 0 in a row that is never read.
        y = x * self.weight[:, -1]
        earlier, tail = earlier_inputs(x, self.width - 1, key_mask, segment_ids, tail)
        for back, past in enumerate(earlier, start=2):
            y = y + past * self.weight[:, -back]
        if self.bias is not None:
            y = y + self.bias
        return self.activation(y), tail
