"""What a model's arguments say about positions: which are padding, what their numbers are, whether it knows them."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from softmax_rnn.attention.host_sync import may_sync
from softmax_rnn.errors import InputError


def key_mask_of(attention_mask: Tensor | None, batch: int, time: int, past: int) -> Bool[Tensor, "B T"] | None:
    """The padding mask of the new positions, True = real; a mask may cover the past as well.

    >>> key_mask_of(torch.tensor([[0, 1, 1]]), batch=1, time=2, past=1)
    tensor([[True, True]])
    """
    if attention_mask is None:
        return None
    size = tuple(attention_mask.shape)
    if attention_mask.dim() != 2:
        raise InputError(f"attention_mask: expected 2 axes (batch, time), 1 = real, got shape {size}")
    if size not in ((batch, time), (batch, past + time)):
        expected = f"({batch}, {past + time})" + (f" or ({batch}, {time})" if past else "")
        raise InputError(f"attention_mask: expected shape {expected}, got {size}")
    return attention_mask[:, -time:].bool()


def positions_of(
    batch: int,
    time: int,
    *,
    key_mask: Bool[Tensor, "B T"] | None = None,
    segment_ids: Int[Tensor, "B T"] | None = None,
    lengths: Int[Tensor, " B"] | None = None,
    device: torch.device | None = None,
) -> Int[Tensor, "B T"]:
    """Real positions counted from 0, restarting in every document, continuing from the ``lengths`` of the past.

    >>> positions_of(1, 5, segment_ids=torch.tensor([[7, 7, 7, 2, 2]]))
    tensor([[0, 1, 2, 0, 1]])
    """
    if key_mask is None and segment_ids is None:
        counted = torch.arange(time, device=device)[None]
        return counted if lengths is None else counted + lengths[:, None]
    real = torch.ones(batch, time, dtype=torch.bool, device=device) if key_mask is None else key_mask
    counted = real.long().cumsum(-1)
    if segment_ids is not None:
        before = torch.nn.functional.pad(counted, (1, 0)).gather(1, segment_starts(segment_ids))
        counted = counted - before
    if lengths is not None:
        counted = counted + lengths[:, None]
    return (counted - 1).clamp(min=0)


def segment_starts(segment_ids: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """The first position of each position's document.

    >>> segment_starts(torch.tensor([[7, 7, 7, 2, 2]]))
    tensor([[0, 0, 0, 3, 3]])
    """
    position = torch.arange(segment_ids.shape[1], device=segment_ids.device).expand_as(segment_ids)
    begins = torch.ones_like(segment_ids, dtype=torch.bool)
    begins[:, 1:] = segment_ids[:, 1:] != segment_ids[:, :-1]
    return torch.where(begins, position, 0).cummax(-1).values


def check_positions(position_ids: Int[Tensor, "B T"], limit: int | None) -> None:
    """Refuse a context that is longer than the positions the model knows, where they can be looked at."""
    if limit is None or not may_sync(position_ids) or not position_ids.numel():
        return
    needed = int(position_ids.max()) + 1
    if needed > limit:
        raise InputError(
            f"context: {needed} positions, but the model has {limit} (max_position_embeddings); shorten the"
            " context, or raise the number together with a scaled RoPE (rope_parameters)"
        )
