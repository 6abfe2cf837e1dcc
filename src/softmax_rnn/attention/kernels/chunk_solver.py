"""The triangular system of a write rule chunk by chunk, through a state: O(T) time and memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.kernels.blocks import Group
from softmax_rnn.attention.kernels.chunked import chunked, values_and_ones
from softmax_rnn.attention.kernels.chunks import Chunk, Inputs, Layout, times
from softmax_rnn.attention.kernels.writing import Solver, in_true_size, inverse


@dataclass(frozen=True)
class ChunkSolver(Solver):
    """The state is read at the start of a chunk, the chunk is solved, what it wrote enters the state."""

    @cached_property
    def layout(self) -> Layout:
        """The chunks."""
        job = self.job
        assert job.score.finite_features is not None
        features = SymmetricFeatures(job.score.finite_features, job.k.shape[-1])
        batch, heads, time, _ = job.k.shape
        return Layout(features, job.visibility, batch, heads, 1, time)

    def _inputs(self, u: Tensor) -> Inputs:
        job = self.job
        decay = None if job.running_decay is None else type(job.running_decay)(job.running_decay.c.flatten(0, 1))
        rows = None if job.rows is None else job.rows.flatten(0, 1)
        return Inputs(job.q.flatten(0, 1), job.k.flatten(0, 1), u, decay, rows, self.layout)

    def solve(self) -> tuple[Tensor, Tensor]:
        """From the start."""
        u, size, pull = values_and_ones(self.job).flatten(0, 1).clone(), self.job.v.shape[-1], self.pull
        scale = self._first_scale()
        inputs = self._inputs(u)
        for group in self.layout.groups():
            state = self._start(u, group)
            for chunk in inputs.chunks(group, self.layout.places()):
                place = (group.heads, chunk.place)
                weights = _weights(chunk)
                read = times(torch.bmm(chunk.query_features().mT, state), chunk.passing.from_past)
                if self.job.wants_row_sum:
                    scale[place] = inverse(read[..., size:] + torch.bmm(weights, chunk.u[..., size:]))
                rate = pull[place] * scale[place]
                right = chunk.u[..., :size] - rate * read[..., :size]
                weights.mul_(rate)
                chunk.u[..., :size] = torch.linalg.solve_triangular(weights, right, upper=False, unitriangular=True)
                state = chunk.advance(state)
        return u[..., :size], scale

    def solve_back(self, grad: Tensor, scale: Tensor) -> Tensor:
        """From the end, with the gradient of the state in place of the state."""
        total, rate = grad.to(self.job.q.dtype, copy=True), self.pull * scale
        inputs = self._inputs(total)
        features = self.layout.features.count
        for group in self.layout.groups():
            later = total.new_zeros(group.count, features, total.shape[-1])
            for chunk in inputs.chunks(group, reversed(self.layout.places())):
                place, passing = (group.heads, chunk.place), chunk.passing
                right = chunk.u - times(torch.bmm(chunk.key_features().mT, later), passing.into_state)
                weights = _weights(chunk).mul_(rate[place])
                total[place] = torch.linalg.solve_triangular(weights.mT, right, upper=True, unitriangular=True)
                pulled = times(rate[place] * total[place], passing.from_past)
                later = torch.bmm(chunk.query_features(), pulled).add_(times(later, passing.keep))
        return total

    def read(self) -> Tensor:
        """By the chunked form."""
        sums, _ = chunked(self.job, self.state)
        return in_true_size(sums)

    def _start(self, u: Tensor, group: Group) -> Tensor:
        if self.state is None:
            return u.new_zeros(group.count, self.layout.features.count, u.shape[-1])
        return self.state.flatten(0, 1)[group.heads].to(u.dtype, copy=True)

    def _first_scale(self) -> Tensor:
        if self.job.log_scale is None or self.job.wants_row_sum:
            return torch.ones_like(self.pull)
        return torch.exp(self.job.log_scale.flatten(0, 1)[:, 0, :, None])


def _weights(chunk: Chunk) -> Tensor:
    """Between each position of the chunk and the earlier ones."""
    weights = chunk.series.value(torch.bmm(chunk.q, chunk.k.mT))
    return chunk.decay_and_mask_(weights).tril_(-1)
