"""The triangular system of a write rule block by block, for any score: O(T) memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.exponential import exp_
from softmax_rnn.attention.kernels.block import Block, QueryBlock, Setting, Work
from softmax_rnn.attention.kernels.blocks import Scratch, Walk
from softmax_rnn.attention.kernels.blockwise import blockwise
from softmax_rnn.attention.kernels.writing import ReadGradients, Solution, Solver, gradients_by_autograd, inverse


@dataclass(frozen=True)
class BlockSolver(Solver):
    """A block of positions reads all earlier blocks, then it is solved.

    ``scale`` is what a row's weights are multiplied by; for exp it is the logarithm that is subtracted.
    """

    def _work(self, v: Tensor) -> Work:
        job = self.job
        batch, heads, group, queries, _ = job.q.shape
        walk = Walk(batch, heads, group, queries, job.k.shape[2], job.visibility, job.q.device)
        setting = Setting(job.score, walk, False, None, 0.0)
        decay = None if job.running_decay is None else RunningDecay(job.running_decay.c.flatten(0, 1))
        rows = None if job.rows is None else job.rows.flatten(0, 1)
        work = Work(job.q.flatten(0, 1), job.k.flatten(0, 1), v, decay, rows, setting)
        # The block that is solved is square.
        largest = max(group.count for group in walk.groups())
        work.scratch = Scratch(work.q, largest * walk.query_block * max(walk.query_block, walk.block))
        return work

    def solve(self) -> Solution:
        work = self._work(self.job.v.flatten(0, 1).contiguous().clone())
        rate, scale = self.pull, self._first_scale()
        for row in self._rows(work):
            place, new = (row.group.heads, row.queries), (row.group.heads, _positions(row))
            if self.job.wants_row_sum:
                scale[place] = self._normalising(row)
            read = torch.zeros_like(work.v[new])
            for keys in _earlier(row):
                read.baddbmm_(_weights(row, keys, scale[place]), work.v[row.group.heads, keys])
            weights = _weights(row, _positions(row), scale[place]).mul_(rate[place])
            right = work.v[new] - rate[place] * read
            work.v[new] = torch.linalg.solve_triangular(weights, right, upper=False, unitriangular=True)
        return Solution(work.v, scale)

    def solve_back(self, grad: Tensor, scale: Tensor) -> Tensor:
        """From the end: what a block read is subtracted from the gradients of all earlier ones."""
        past = torch.zeros_like(self.job.v[:, :, : self.job.past]).flatten(0, 1)
        work = self._work(torch.cat([past, grad.to(past.dtype)], 1))
        rate = self.pull
        for row in reversed(list(self._rows(work))):
            place, new = (row.group.heads, row.queries), (row.group.heads, _positions(row))
            weights = _weights(row, _positions(row), scale[place]).mul_(rate[place])
            work.v[new] = torch.linalg.solve_triangular(weights.mT, work.v[new], upper=True, unitriangular=True)
            pulled = rate[place] * work.v[new]
            for keys in _earlier(row):
                work.v[row.group.heads, keys] -= torch.bmm(_weights(row, keys, scale[place]).mT, pulled)
        return work.v[:, self.job.past :]

    def read_gradients(self, weight: Tensor, solution: Solution) -> ReadGradients:
        return gradients_by_autograd(self, blockwise, weight)

    def _rows(self, work: Work) -> Iterator[QueryBlock]:
        return (row for group in work.setting.walk.groups() for row in work.query_blocks(group))

    def _first_scale(self) -> Tensor:
        if self.job.score.is_exponential:
            return torch.zeros_like(self.pull)
        if self.job.log_scale is None or self.job.wants_row_sum:
            return torch.ones_like(self.pull)
        return torch.exp(self.job.log_scale.flatten(0, 1)[:, 0, :, None])

    def _normalising(self, row: QueryBlock) -> Tensor:
        """The scale with which the weights of a row sum to 1."""
        places = [*_earlier(row), _positions(row)]
        if not self.job.score.is_exponential:
            mass, one = torch.zeros_like(row.q[..., :1]), torch.ones_like(row.q[..., :1])
            for keys in places:
                mass += _weights(row, keys, one).sum(-1, keepdim=True)
            return inverse(mass)
        largest = torch.full_like(row.q[..., :1], -torch.inf)
        for keys in places:
            largest = torch.logaddexp(largest, torch.logsumexp(_logarithms(row, keys), -1, keepdim=True))
        return torch.where(largest == -torch.inf, 0, largest)


def _positions(row: QueryBlock) -> slice:
    """Where the queries of a block stand among the keys."""
    past = row.work.setting.walk.past
    return slice(past + row.queries.start, past + row.queries.stop)


def _earlier(row: QueryBlock) -> Iterator[slice]:
    """The blocks of keys before the first query."""
    start = _positions(row).start
    for keys in row.work.setting.walk.key_blocks(row.group, row.queries):
        if keys.start < start:
            yield slice(keys.start, min(keys.stop, start))


def _logarithms(row: QueryBlock, keys: slice) -> Tensor:
    """The logarithms of exp's weights of strictly earlier keys."""
    block = Block(row, keys)
    x = block.logarithms_(block.dots())
    if row.decay is not None:
        x.add_(row.decay)
    if keys == _positions(row):
        x.diagonal(dim1=-2, dim2=-1).fill_(-torch.inf)
    return x


def _weights(row: QueryBlock, keys: slice, scale: Tensor) -> Tensor:
    """The weights of strictly earlier keys."""
    if row.work.setting.score.is_exponential:
        return exp_(_logarithms(row, keys).sub_(scale))
    block = Block(row, keys)
    weights = row.series.value(row.work.setting.score.cut_(block.dots()))
    block.decay_and_mask_(weights)
    if keys == _positions(row):
        weights.tril_(-1)
    return weights.mul_(scale)
