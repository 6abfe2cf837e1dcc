"""Who sees whom, as tensors that the kernels read: nothing here is read on the host."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int, Int8
from torch import Tensor

from softmax_rnn.attention.visibility import Visibility


@dataclass(frozen=True)
class Seen:
    """Query i sees key j ≤ i if the key is real (``mask``) and j ≥ low_i, or first_i ≤ j < sink_i; None: always."""

    mask: Int8[Tensor, "B T"] | None = None
    low: Int[Tensor, "B T"] | None = None
    first: Int[Tensor, "B T"] | None = None
    sink: Int[Tensor, "B T"] | None = None
    last: Int[Tensor, "B T"] | None = None
    """The last query that sees each key, or a later one."""

    @classmethod
    def of(cls, visibility: Visibility, batch: int, time: int, device: torch.device, chunk: int | None = None) -> Seen:
        """``chunk`` restricts each query to the keys of its own chunk."""
        mask = None if visibility.key_mask is None else visibility.key_mask.to(torch.int8).contiguous()
        first, near = visibility.first_key, visibility.near
        position = torch.arange(time, device=device).expand(batch, -1)
        low = first if near is None else near.start
        if chunk is not None:
            begin = position // chunk * chunk
            low = begin if low is None else torch.maximum(low, begin)
        if low is None:
            return cls(mask)
        low = low.contiguous()
        last = torch.searchsorted(low, position.contiguous(), right=True) - 1
        if near is None or not near.sinks:
            return cls(mask, small(low), last=small(last))
        first = torch.zeros_like(low) if first is None else first.contiguous()
        end = torch.searchsorted(first, position.contiguous(), right=True) - 1
        last = torch.where(position < near.sink_stop, end, last)
        return cls(mask, *map(small, (low, first, near.sink_stop, last)))

    @property
    def flags(self) -> dict[str, bool]:
        """What the kernels are compiled for."""
        return {
            "HAS_MASK": self.mask is not None,
            "HAS_LOW": self.low is not None,
            "HAS_SINKS": self.sink is not None,
        }


def small(x: Tensor) -> Tensor:
    """Places as the kernels read them."""
    return x.to(torch.int32).contiguous()
