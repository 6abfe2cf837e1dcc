"""Whether the host may read values of a tensor between the inputs and the output of a call.

On a CPU a read is free and saves work: a mask that hides nothing, a range that float32 holds, a block that has decayed
to 0. On a device it makes the host wait for all queued work (a synchronisation), and inside a compiled graph it is a
break. There the same results come from arithmetic alone, without a branch.

>>> import torch
>>> may_sync(torch.ones(3)), may_sync(torch.ones(3, device="meta"))
(True, False)
>>> with like_a_device():
...     may_sync(torch.ones(3))
False
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

_LIKE_A_DEVICE: ContextVar[bool] = ContextVar("like_a_device", default=False)


def may_sync(x: Tensor) -> bool:
    """Whether the host may read values of x: it costs nothing."""
    return x.device.type == "cpu" and not traced(x) and not _LIKE_A_DEVICE.get()


def traced(x: Tensor) -> bool:
    """Whether a graph is being made of what happens to x; its sizes may then be symbols."""
    return type(x) is not Tensor and isinstance(x, (FunctionalTensor, FakeTensor))


def hint(size: int) -> int:
    """A size as a number: of a symbol the one that it was first seen with, without a guard on it."""
    return size if isinstance(size, int) else size.node.hint


@contextmanager
def like_a_device() -> Iterator[None]:
    """Inside, tensors of the CPU are treated like those of a device."""
    before = _LIKE_A_DEVICE.set(True)
    try:
        yield
    finally:
        _LIKE_A_DEVICE.reset(before)
