"""Levels one position at a time: a stack of states as the digits of a binary counter.

A token reads the states of the set digits of its position, each with the λ of its level. Then it is counted: the states
of the trailing ones are joined with it into the state of the next digit. A state that stays where it is is not touched:
how much of it is left is one number per head.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.kernels.chunked import split_sums, values_and_ones
from softmax_rnn.attention.kernels.level_slots import step_by_step
from softmax_rnn.attention.kernels.recurrent import keep_of
from softmax_rnn.attention.levels import LevelSums, blocks


def through_levels(job: Contraction, past: LevelSums | None) -> tuple[Sums, LevelSums | None]:
    """Step after step through a stack of states."""
    polynomial, levels = job.score.finite_features, job.levels
    assert polynomial is not None and levels is not None
    if not levels.known:
        return step_by_step(job, past)
    features = SymmetricFeatures(polynomial, job.k.shape[-1])
    u = values_and_ones(job)
    if past is None:
        past = LevelSums({1: u.new_zeros(*u.shape[:2], features.count, u.shape[-1])})
    stack = _Counter(past, levels.top, u)
    newest, outputs = job.own_scores(), []
    real = None if job.visibility.key_mask is None else job.visibility.key_mask.tolist()
    positions = [levels.row(number) for number in range(u.shape[0])]
    for t in range(job.k.shape[2]):
        stack.fade(keep_of(job, t, features))
        at = [row[t] for row in positions]
        rows = None if job.rows is None else job.rows[:, :, :, t]
        query = features.query(job.q[:, :, :, t].flatten(0, 1).mT, None if rows is None else rows.flatten(0, 1))
        own = levels.weights[:, :, :, t]
        weight = job.score.series(rows).differentiable(newest[:, :, :, t, None])
        read = stack.read(query.mT.unflatten(0, u.shape[:2]), own, at)
        outputs.append(read + own[..., :1] * weight * u[:, :, t, None, :])
        key = features.key(job.k[:, :, t].flatten(0, 1)[..., None]).unflatten(0, u.shape[:2])
        stack.count(at, [real is None or real[row][t] for row in range(len(at))], key * u[:, :, t, None, :])
    return split_sums(job, torch.stack(outputs, dim=3)), LevelSums(stack.sums, stack.factors)


class _Counter:
    """The states of the set digits, by level."""

    def __init__(self, past: LevelSums, top: int, like: Tensor) -> None:
        self.sums = {level: x.to(like.dtype) for level, x in past.sums.items()}
        self.factors, self.top, self.like = dict(past.factors), top, like

    def fade(self, keep: Shaped[Tensor, "B M 1 1"] | None) -> None:
        """A step of decay."""
        if keep is not None:
            self.factors = {n: keep * self.factors[n] if n in self.factors else keep for n in self.sums}

    def read(self, query: Float[Tensor, "B K G F"], own: Float[Tensor, "B K G L"], at: list[int]) -> Tensor:
        """What the queries at these positions read, one position per row of the batch."""
        total = self.like.new_zeros(*query.shape[:3], self.like.shape[-1])
        for level in sorted({block.level for n in set(at) for block in blocks(n, self.top)}):
            factor = own[..., level, None]
            if level in self.factors:
                factor = factor * self.factors[level].to(factor.dtype)
            total = total + torch.matmul(query, self.sums[level]) * factor
        return total

    def _now(self, level: int) -> Tensor:
        return self.sums[level] * self.factors[level].to(self.like.dtype) if level in self.factors else self.sums[level]

    def count(self, at: list[int], real: list[bool], token: Float[Tensor, "B K F U"]) -> None:
        """Tokens at these positions come in; padding does not."""
        digit = [min((~n & (n + 1)).bit_length(), self.top) if here else 0 for n, here in zip(at, real, strict=True)]
        for level in sorted(set(digit) - {0}):
            rows = None
            if len(set(digit)) > 1:
                rows = torch.tensor(digit, device=token.device)[:, None, None, None] == level
            self._carry(level, token, rows)
        needed = {1} | {block.level for n, here in zip(at, real, strict=True) for block in blocks(n + here, self.top)}
        for level in set(self.sums) - needed:
            del self.sums[level]
            self.factors.pop(level, None)
        if 1 not in self.sums:
            self.sums[1] = torch.zeros_like(token)

    def _carry(self, level: int, token: Tensor, rows: Tensor | None) -> None:
        """Join all lower levels and the token into a level, in some rows of the batch."""
        lower = [n for n in self.sums if n < level or n == level == self.top]
        joined = token
        for n in lower:
            joined = joined + self._now(n)
        if rows is not None:
            old = self._now(level) if level in self.sums else torch.zeros_like(token)
            joined = torch.where(rows, joined, old)
        for n in lower:
            if rows is not None:
                self.sums[n] = torch.where(rows, 0, self.sums[n])
            elif n != level:
                del self.sums[n]
                self.factors.pop(n, None)
        self.sums[level] = joined
        self.factors.pop(level, None)
