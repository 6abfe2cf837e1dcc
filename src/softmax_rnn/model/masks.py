"""Masks of transformers in our terms: which keys are real, or which document each belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor
from transformers.masking_utils import causal_mask_function, sdpa_mask

from softmax_rnn.errors import InputError


def visible_keys(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable = causal_mask_function,
    attention_mask: Tensor | None = None,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> Tensor | None:
    """A mask function: real keys (boolean) or segments (whole numbers), (batch, keys); None for causal only."""
    end = int(q_offset) + q_length - int(kv_offset)
    if mask_function is not causal_mask_function:
        allowed = sdpa_mask(
            batch_size,
            q_length,
            kv_length,
            q_offset=int(q_offset),
            kv_offset=int(kv_offset),
            mask_function=mask_function,
            attention_mask=attention_mask,
            allow_is_causal_skip=False,
            use_vmap=bool(kwargs.get("use_vmap", False)),
            device=device,
        )
        assert allowed is not None
        try:
            return read_mask(allowed[:, 0], kv_length)
        except InputError:
            return allowed  # the attention function knows whether the model has a window, which would explain it
    if attention_mask is None:
        return None if end == kv_length else torch.ones(batch_size, end, dtype=torch.bool, device=device)
    mask = attention_mask[:, int(kv_offset) : int(kv_offset) + end].to(device=device, dtype=torch.bool)
    if mask.shape[1] < end:
        mask = torch.nn.functional.pad(mask, (0, end - mask.shape[1]))
    return None if end == kv_length and bool(mask.all()) else mask


def read_mask(allowed: Bool[Tensor, "B Tq T"], time: int, window: int | None = None) -> Tensor | None:
    """A mask of pairs inside a window as padding or segments; refused where it is neither (both directions, …)."""
    queries = allowed.shape[1]
    query = torch.arange(time - queries, time, device=allowed.device)[:, None]
    key = torch.arange(time, device=allowed.device)
    causal = key <= query
    if window is not None:
        causal &= key > query - window
    if bool((allowed == causal).all()):
        return None
    real = allowed.any(1)
    if bool((allowed == causal & real[:, None]).all()):
        return real
    if queries == time:
        # Where a position does not see the one before it, a new segment begins.
        begins = ~allowed.diagonal(-1, 1, 2)
        segments = torch.nn.functional.pad(begins.long().cumsum(-1), (1, 0))
        if bool((allowed == causal & (segments[:, :, None] == segments[:, None])).all()):
            return segments
    raise InputError(
        "attention_mask: expected causal attention with padding or packed documents, got another pattern"
        " (a sliding window, or keys after the query)"
    )
