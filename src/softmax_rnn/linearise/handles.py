"""What is trained in place of a matrix: a scale per head or a low-rank update. `folded` puts it into the matrix.

    W · diag(s)        s one number per head, in the columns that read its output
    W + B A            B starts at 0

Both are torch parametrizations, so the module's code is unchanged.

>>> project = nn.Linear(4, 3, bias=False)
>>> before = project.weight.detach().clone()
>>> add_scales(project, heads=2)
>>> sorted(project.state_dict())
['parametrizations.weight.0.scale', 'parametrizations.weight.original']
>>> torch.equal(folded(project.state_dict())["weight"], before)
True
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from softmax_rnn.errors import InputError

_ORIGINAL = "parametrizations.weight.original"
_STEP = re.compile(r"parametrizations\.weight\.(\d+)\.(scale|down|up)")


class HeadScales(nn.Module):
    """One factor per head for its columns."""

    def __init__(self, heads: int, like: Tensor) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(heads, dtype=like.dtype, device=like.device))

    def forward(self, weight: Tensor) -> Tensor:
        """W · diag(s)."""
        return with_scales(weight, self.scale)


class LowRankUpdate(nn.Module):
    """B A, of rank ``rank``."""

    def __init__(self, rank: int, like: Tensor) -> None:
        super().__init__()
        rows, columns = like.shape
        if rank > min(rows, columns):
            raise InputError(f"rank: expected at most {min(rows, columns)} for a matrix of {rows} × {columns}")
        self.down = nn.Parameter(torch.empty(rank, columns, dtype=like.dtype, device=like.device))
        self.up = nn.Parameter(torch.zeros(rows, rank, dtype=like.dtype, device=like.device))
        nn.init.normal_(self.down, std=columns**-0.5)

    def forward(self, weight: Tensor) -> Tensor:
        """W + B A."""
        return weight + self.up @ self.down


def with_scales(weight: Tensor, scale: Tensor) -> Tensor:
    """The matrix with each head's columns times its factor."""
    return weight * scale.repeat_interleave(weight.shape[1] // len(scale))


def add_scales(project: nn.Module, heads: int) -> None:
    """Add a trainable scale per head to an output projection."""
    weight = project.weight
    assert isinstance(weight, Tensor)
    parametrize.register_parametrization(project, "weight", HeadScales(heads, weight), unsafe=True)


def add_low_rank(project: nn.Module, rank: int) -> None:
    """Add a trainable low-rank update to a matrix and freeze the matrix."""
    weight = project.weight
    assert isinstance(weight, Tensor)
    parametrize.register_parametrization(project, "weight", LowRankUpdate(rank, weight), unsafe=True)
    kept = dict(project.named_parameters())[_ORIGINAL]
    kept.requires_grad_(False)


def folded(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Named weights with parametrizations multiplied out: each matrix is as the module used it."""
    whole = {name: x for name, x in weights.items() if ".parametrizations." not in f".{name}"}
    for name, original in weights.items():
        if not name.endswith(_ORIGINAL):
            continue
        prefix, value = name.removesuffix(_ORIGINAL), original
        steps: dict[int, dict[str, Tensor]] = {}
        for other, x in weights.items():
            match = _STEP.fullmatch(other.removeprefix(prefix)) if other.startswith(prefix) else None
            if match:
                steps.setdefault(int(match[1]), {})[match[2]] = x
        for _, step in sorted(steps.items()):
            value = with_scales(value, step["scale"]) if "scale" in step else value + step["up"] @ step["down"]
        whole[f"{prefix}weight"] = value
    return whole
