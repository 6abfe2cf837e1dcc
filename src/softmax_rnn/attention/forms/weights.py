"""The weights of a block of queries and keys, made in place in scratch memory: what both passes of `blockwise` share.

For exp the logarithms are made, so that the caller can subtract the row's largest; for a polynomial the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from softmax_rnn.attention.contraction import NegativeRows
from softmax_rnn.attention.forms.blocks import Group, Masks, Scratch, Walk
from softmax_rnn.attention.parts import Exp, Score


@dataclass(frozen=True)
class Setting:
    """What stays the same for all blocks of a call."""

    score: Score
    walk: Walk
    wants_row_sum: bool
    negative: NegativeRows | None
    largest_score: float
    """No score is larger: the clamp, or |q||k|. Only the decay asks for it."""

    @property
    def is_exp(self) -> bool:
        """Whether logarithms are made."""
        return isinstance(self.score, Exp)


@dataclass
class Inputs:
    """The flattened tensors: q (N, G, Tq, D), k (N, T, D), v (N, T, E), decay (N, T), rows (N, G, Tq, O)."""

    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor | None
    rows: Tensor | None

    def rows_of(self, x: Tensor, group: Group, queries: slice) -> Tensor:
        """A block of queries with the heads of a group side by side: (heads, G · queries, …)."""
        return x[group.heads, :, queries].flatten(1, 2)

    def has_faded(self, group: Group, queries: slice, keys: slice, setting: Setting, reduced: Tensor) -> bool:
        """Whether every weight of a block is negligible beside the largest of its row, by the decay alone."""
        at_key = self.decay_at_keys(group, queries, keys, setting.walk.past)
        if at_key is None:
            return False
        largest = setting.largest_score - float(at_key.min()) - float(reduced.min())
        return largest < NEGLIGIBLE_LOG[self.q.dtype]

    def decay_at_keys(self, group: Group, queries: slice, keys: slice, past: int) -> Tensor | None:
        """decay_j from the origin of the query block, so that the difference of two large numbers is taken once."""
        if self.decay is None:
            return None
        decay = self.decay[group.heads]
        return (decay[:, keys] - decay[:, past + queries.start, None]).to(self.q.dtype)[:, None]

    def decay_at_queries(self, group: Group, queries: slice, past: int) -> Tensor | None:
        """decay_i from the same origin, as rows of a block."""
        if self.decay is None:
            return None
        decay = self.decay[group.heads, past + queries.start : past + queries.stop]
        return (decay - decay[:, :1]).to(self.q.dtype).repeat(1, self.q.shape[1])[..., None]


def clamp_(x: Tensor, clamp: float | None) -> Tensor:
    """Scores up to the clamp, in place."""
    return x if clamp is None else x.clamp_(max=clamp)


NEGLIGIBLE_LOG = {torch.float32: -60.0, torch.float64: -600.0}
"""A weight smaller than this part of its row's largest vanishes in every sum. Made 0, for the products of such
numbers would be subnormal, and processors take a hundred times as long for those."""


def exp_(x: Tensor) -> Tensor:
    """exp of logarithms whose row has its largest at 0, in place."""
    return torch.threshold_(x, NEGLIGIBLE_LOG[x.dtype], -torch.inf).exp_()


def zero_above_(grad: Tensor, x: Tensor, clamp: float) -> None:
    """The gradient of the clamp, in place: 0 where x is cut. One pass, while boolean masks cost five."""
    above = math.nextafter(clamp, math.inf) if x.dtype == torch.float64 else _next_float32(clamp)
    torch.ops.aten.hardtanh_backward.grad_input(grad, x, -torch.inf, above, grad_input=grad)


def _next_float32(value: float) -> float:
    number = torch.tensor(value, dtype=torch.float32)
    return float(torch.nextafter(number, torch.tensor(torch.inf)))


def logarithms(
    inputs: Inputs,
    setting: Setting,
    scratch: Scratch,
    masks: Masks,
    group: Group,
    queries: slice,
    keys: slice,
    q: Tensor,
) -> Tensor:
    """log of the weights of a block, up to the row's own decay: the clamped score, the key's decay and the mask."""
    x = dots(inputs, scratch, group, keys, q)
    return finish_logarithms(inputs, setting, masks, group, queries, keys, x)


def dots(inputs: Inputs, scratch: Scratch, group: Group, keys: slice, q: Tensor) -> Tensor:
    """q·k of a block, in scratch memory."""
    x = scratch.block("x", group.count, q.shape[1], keys.stop - keys.start)
    return torch.bmm(q, inputs.k[group.heads, keys].transpose(1, 2), out=x)


def finish_logarithms(
    inputs: Inputs, setting: Setting, masks: Masks, group: Group, queries: slice, keys: slice, x: Tensor
) -> Tensor:
    """Dot products become logarithms of weights, in place."""
    clamp_(x, setting.score.clamp)
    at_key = inputs.decay_at_keys(group, queries, keys, setting.walk.past)
    if at_key is not None:
        x.sub_(at_key)
    masks.add_(x, group, queries, keys)
    return x


def polynomial(
    inputs: Inputs,
    setting: Setting,
    function: Callable[[Score, Tensor, Tensor | None], Tensor],
    group: Group,
    queries: slice,
    x: Tensor,
) -> Tensor:
    """The polynomial of a block of scores, or its slope: `function` says which."""
    rows = None if inputs.rows is None else inputs.rows_of(inputs.rows, group, queries)
    return function(setting.score, x, rows)


def fade_(
    inputs: Inputs,
    setting: Setting,
    masks: Masks,
    group: Group,
    queries: slice,
    keys: slice,
    *blocks: Tensor,
) -> None:
    """Multiply blocks of a polynomial's weights by decay and mask, in place."""
    own = inputs.decay_at_queries(group, queries, setting.walk.past)
    at_key = inputs.decay_at_keys(group, queries, keys, setting.walk.past)
    if own is None or at_key is None:
        masks.multiply_(blocks, group, queries, keys)
        return
    logarithm = own - at_key
    masks.add_(logarithm, group, queries, keys)
    factor = logarithm.exp_()
    for block in blocks:
        block.mul_(factor)
