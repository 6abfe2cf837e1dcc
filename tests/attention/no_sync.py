"""Modes under which it is an error when the host reads a value of a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from softmax_rnn.attention import nonpositive
from softmax_rnn.attention.host_sync import like_a_device

WAITS = {
    "_local_scalar_dense",
    "item",
    "is_nonzero",
    "equal",
    "allclose",
    "nonzero",
    "nonzero_numpy",
    "argwhere",
    "masked_select",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "unique_dim_consecutive",
    "bincount",
    "histc",
}
"""Operators whose result, or its shape, the host must wait for."""
READS = {"tolist", "numpy", "item", "cpu", "__bool__", "__int__", "__float__", "__index__", "__array__"}
"""Methods of a tensor that read its memory without an operator."""


class SyncError(AssertionError):
    """The host has read a value."""


class _Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in WAITS:
            raise SyncError(f"aten.{name} makes the host wait")
        if name in ("index", "index_put", "index_put_") and any(
            isinstance(x, Tensor) and x.dtype in (torch.bool, torch.uint8) for x in args[1]
        ):
            raise SyncError(f"aten.{name} with a boolean mask makes the host wait")
        if name == "repeat_interleave" and isinstance(args[0], Tensor) and (kwargs or {}).get("output_size") is None:
            raise SyncError("aten.repeat_interleave by a tensor makes the host wait")
        return func(*args, **(kwargs or {}))


class _Methods(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in READS:
            raise SyncError(f"Tensor.{func.__name__} makes the host wait")
        return func(*args, **(kwargs or {}))


@contextmanager
def no_sync() -> Iterator[None]:
    """Inside, the first read raises."""
    with _Operators(), _Methods():
        yield


@contextmanager
def as_on_a_device() -> Iterator[None]:
    """Inside, looks are neither made nor possible."""
    with nonpositive.counted(), like_a_device(), no_sync():
        yield
