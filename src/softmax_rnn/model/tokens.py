"""The edge of the model: tokens are whole numbers of its vocabulary, one per position.

>>> check_tokens("input_ids", torch.ones(2, 3))
Traceback (most recent call last):
softmax_rnn.errors.InputError: input_ids: expected whole numbers, got torch.float32
"""

from __future__ import annotations

import torch
from torch import Tensor

from softmax_rnn.errors import InputError


def check_tokens(name: str, tokens: Tensor, shape: tuple[int, ...] | None = None) -> None:
    """Whole numbers with a batch and a time axis, of the given shape where there is one."""
    if not isinstance(tokens, Tensor):
        raise InputError(f"{name}: expected a tensor, got {type(tokens).__name__}")
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise InputError(f"{name}: expected whole numbers, got {tokens.dtype}")
    size = tuple(tokens.shape)
    if len(size) != 2 or 0 in size:
        raise InputError(f"{name}: expected 2 axes (batch, time) with an entry each, got shape {size}")
    if shape is not None and size != shape:
        raise InputError(f"{name}: expected shape {shape}, got {size}")


def check_embedded(hidden: Tensor, width: int) -> None:
    """Vectors of the model's width."""
    if hidden.dim() != 3 or hidden.shape[-1] != width:
        raise InputError(f"inputs_embeds: expected shape (batch, time, {width}), got {tuple(hidden.shape)}")


def outside_vocabulary(name: str, tokens: Tensor, vocab_size: int) -> InputError:
    """The error for tokens that the model has no row for; looked for only after a lookup has failed."""
    low, high = int(tokens.min()), int(tokens.max())
    came = high if high >= vocab_size else low
    return InputError(f"{name}: expected tokens from 0 to {vocab_size - 1}, the model's vocabulary, got {came}")
