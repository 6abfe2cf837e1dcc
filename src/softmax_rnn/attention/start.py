"""The state before the first token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from softmax_rnn.attention.algebra import fixed_state_score, has_wide_sums, n_features
from softmax_rnn.attention.arguments import Shape, check_device, check_state_sizes
from softmax_rnn.attention.parts.base import axes_shape
from softmax_rnn.attention.spec import AttentionSpec, check_spec
from softmax_rnn.attention.state import State


def init_state(
    spec: AttentionSpec,
    *,
    batch: int,
    heads: int,
    key_dim: int,
    value_dim: int | None = None,
    kv_heads: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> State:
    """The state before the first token.

    >>> from softmax_rnn.attention.variants import VARIANTS
    >>> init_state(VARIANTS["taylor_2"], batch=1, heads=2, key_dim=4).matrix.shape    # C(6, 2) = 15 features
    torch.Size([1, 2, 15, 5])
    """
    check_spec(spec)
    value_dim = key_dim if value_dim is None else value_dim
    check_state_sizes(heads, kv_heads, dtype, batch=batch, key_dim=key_dim, value_dim=value_dim)
    check_device(device)
    return Start(spec, Shape(batch, heads, kv_heads or heads, 0, key_dim, value_dim), dtype, device).state()


@dataclass
class Start:
    """What the state before the first position is made of; its numbers are checked."""

    spec: AttentionSpec
    shape: Shape
    dtype: torch.dtype
    device: torch.device | str | None

    def __post_init__(self) -> None:
        self.features = self.spec.width(self.shape.key_dim)
        self.score = fixed_state_score(self.spec, self.shape.key_dim)
        """That of a state of fixed size."""
        self.size = (self.shape.batch, self.shape.heads if self.spec.differs_by_head else self.shape.kv_heads)
        self.wide = torch.float64 if self.dtype == torch.float64 else torch.float32

    def state(self) -> State:
        from softmax_rnn.attention.structures import past_of

        state = past_of(self.spec.over_time).start(self)
        state.mark(fresh=True)
        object.__setattr__(state, "fed", 0)
        return state

    def zeros(self, *size: int, dtype: torch.dtype | None = None) -> Tensor:
        """For each head that has a state of its own."""
        return torch.zeros(*self.size, *size, dtype=dtype or self.wide, device=self.device)

    def carried(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The fields that every state has."""
        batch, wide, running = self.shape.batch, self.wide, {}
        for part in self.spec.running_parts:
            size = (batch, *axes_shape(part.running_axes, self.shape.letters(self.spec)))
            first = max(part.running_start() or 0.0, torch.finfo(wide).min)
            running[part.slot] = torch.full(size, first, dtype=wide, device=self.device)
        return torch.zeros(batch, dtype=torch.int64, device=self.device), running

    def lists(self, width: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys of this width, values, and the decay."""
        forget, decay = self.spec.forget_gate, None
        if forget is not None:
            decay = self.zeros(0, self.features) if forget.by_channel else self.zeros(0, dtype=torch.float64)
        return self.zeros(0, width), self.zeros(0, self.shape.value_dim), decay

    def sums(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The matrix of a state of fixed size, the largest |k| and the extent, where the score reads them."""
        assert self.score is not None
        score, columns = self.spec.score, self.shape.value_dim + self.spec.wants_row_sum
        dtype = torch.float64 if has_wide_sums(self.spec) else None
        matrix = self.zeros(n_features(self.score, self.features), columns, dtype=dtype)
        extent = score.empty_extent(self.features)
        if extent is not None:
            extent = extent.to(matrix.device).expand(*matrix.shape[:2], -1)
        return matrix, self.zeros() if score.reads_key_norm else None, extent
