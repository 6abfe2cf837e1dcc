"""Constant tensors: made once for each device, whatever is traced or recorded at the time.

A copy from the host is a stop on a device, so there is one for each constant and not one a call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


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
    @wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> R:
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
            return make(*args, **kwargs)

    return made  # pyright: ignore[reportReturnType]
