"""Constant tensors: made once for each device, whatever is traced or recorded at the time.

A copy from the host is a stop on a device, so there is one for each constant and not one per call. In a traced graph a
constant enters as `torch.tensor` would put it there: compilers know a lifted tensor, and none that comes from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R", bound="Tensor | tuple[Tensor, ...]")


@contextmanager
def ordinary_tensors() -> Iterator[None]:
    """Inside, tensors are made as outside of all modes: one can write to them later."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
        yield


def constant(make: Callable[P, R]) -> Callable[P, R]:
    """The function with a memory; what it makes are ordinary tensors, also while a graph is traced.

    >>> import torch
    >>> @constant
    ... def ones(count: int) -> torch.Tensor:
    ...     return torch.ones(count)
    >>> ones(2) is ones(2)
    True
    """

    @cache
    def made(*args: P.args, **kwargs: P.kwargs) -> R:
        with ordinary_tensors():
            return make(*args, **kwargs)

    @wraps(make)
    def given(*args: P.args, **kwargs: P.kwargs) -> R:
        import torch

        value = made(*args, **kwargs)
        if not torch._C._len_torch_dispatch_stack():
            return value
        lift = torch.ops.aten.lift_fresh
        return tuple(map(lift, value)) if isinstance(value, tuple) else lift(value)  # pyright: ignore

    return given
