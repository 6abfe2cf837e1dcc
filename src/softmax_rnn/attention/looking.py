"""Whether the numbers of a tensor may be looked at on the way from the inputs to the output.

On a CPU a look is free, and what it tells saves work: a mask that hides nothing, a range that float32 holds, a block
that has faded. On a device a look makes the host wait for everything that is queued, and inside a compiled graph it is
a break. There the same results come from arithmetic alone, without a branch.

>>> import torch
>>> may_look(torch.ones(3)), may_look(torch.ones(3, device="meta"))
(True, False)
>>> with blind():
...     may_look(torch.ones(3))
False
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

_BLIND: ContextVar[bool] = ContextVar("blind", default=False)


def may_look(x: Tensor) -> bool:
    """Whether reading numbers of x on the host costs nothing."""
    return x.device.type == "cpu" and not traced(x) and not _BLIND.get()


def traced(x: Tensor) -> bool:
    """Whether a graph is being made of what happens to x; its sizes may then be symbols."""
    return type(x) is not Tensor and isinstance(x, (FunctionalTensor, FakeTensor))


def hint(size: int) -> int:
    """A size as a number: of a symbol the one that it was first seen with, without a guard on it."""
    return size if isinstance(size, int) else size.node.hint


@contextmanager
def blind() -> Iterator[None]:
    """Inside, tensors of the CPU are treated like those of a device."""
    before = _BLIND.set(True)
    try:
        yield
    finally:
        _BLIND.reset(before)
