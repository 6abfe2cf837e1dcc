"""The triangular system of a write rule chunk by chunk, through a state: O(T) time and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.kernels.chunked import chunk_gradients, layout_of, row_dots, values_and_ones
from softmax_rnn.attention.kernels.chunks import Chunk, Inputs, Layout, times
from softmax_rnn.attention.kernels.writing import ReadGradients, Solution, Solver, inverse


@dataclass(frozen=True)
class ChunkSolver(Solver):
    """The state is read at the start of a chunk, the chunk is solved, what it wrote enters the state.

    With a folded decay the system is that of e^(o − c_j) v′_j, which has no decay.
    """

    @cached_property
    def layout(self) -> Layout:
        """The chunks; a read never sees its own position."""
        return layout_of(self.job, strict=True)

    def _inputs(self, u: Tensor) -> Inputs:
        job = self.job
        return Inputs.of(job.q.flatten(0, 1), job.k.flatten(0, 1), u, self._decay, self._rows, self.layout)

    @property
    def _decay(self) -> Tensor | None:
        return None if self.job.running_decay is None else self.job.running_decay.c.flatten(0, 1)

    @property
    def _rows(self) -> Tensor | None:
        return None if self.job.rows is None else self.job.rows.flatten(0, 1)

    @property
    def _start(self) -> Float[Tensor, "N F U"]:
        """The state before the first chunk, to be overwritten."""
        job, features = self.job, self.layout.features.count
        if self.state is not None:
            return self.state.flatten(0, 1).to(job.v.dtype, copy=True)
        width = job.v.shape[-1] + job.wants_row_sum
        return job.v.new_zeros(job.v.shape[0] * job.v.shape[1], features, width)

    def solve(self) -> Solution:
        size, pull, start = self.job.v.shape[-1], self.pull, self._start
        scale = self._first_scale()
        given = values_and_ones(self.job).flatten(0, 1)
        inputs = self._inputs(given)
        if inputs.fold is None:
            inputs = replace(inputs, u=given.clone())
        u, row_factor = inputs.u, inputs.row_factor
        reads = torch.empty_like(u[..., :size])
        for group in self.layout.groups():
            state = start[group.heads]
            for chunk in inputs.chunks(group, self.layout.places()):
                place = (group.heads, chunk.place)
                weights, read = _weights(chunk), chunk.read(chunk.enter_(state))
                if self.job.wants_row_sum:
                    mass = read[..., size:] + torch.bmm(weights, chunk.u[..., size:])
                    scale[place] = inverse(times(mass, None if row_factor is None else row_factor[place]))
                rate = pull[place] * scale[place]
                right = torch.addcmul(chunk.u[..., :size], rate, read[..., :size], value=-1)
                made = torch.linalg.solve_triangular(weights * rate, right, upper=False, unitriangular=True)
                reads[place] = read[..., :size].baddbmm(weights, made)
                u[(*place, slice(size))] = made
                chunk.advance_(state)
        reads = times(reads.mul_(scale), row_factor)
        return Solution(times(u[..., :size], row_factor), scale, reads)

    def solve_back(self, grad: Tensor, scale: Tensor) -> Tensor:
        """From the end, with the gradient of the state in place of the state."""
        inputs = self._inputs(grad.new_empty(0).expand(*grad.shape[:2], 0))
        total, rate = times(grad, inputs.row_factor), self.pull * scale
        total = grad.to(self.job.q.dtype, copy=True) if total is grad else total
        for group in self.layout.groups():
            later = total.new_zeros(group.count, self.layout.features.count, total.shape[-1])
            for chunk in inputs.chunks(group, self.layout.places()[::-1]):
                place, into_state = (group.heads, chunk.place), chunk.passing.into_state
                right = total[place] - times(torch.bmm(chunk.key_features().mT, later), into_state)
                weights = _weights(chunk).mul_(rate[place])
                made = torch.linalg.solve_triangular(weights.mT, right, upper=True, unitriangular=True)
                total[place] = made
                chunk.retreat_(later, rate[place] * made)
        return times(total, inputs.column_factor)

    def read_gradients(self, weight: Tensor, solution: Solution) -> ReadGradients:
        """By the walks of the chunked form; a row sum has the gradient −weight·read, in the units of the form."""
        job, size = self.job, self.job.v.shape[-1]
        reads, scale = solution.read, solution.scale
        assert reads is not None
        flat = weight.flatten(0, 1)
        at_query = row_dots(flat, reads)
        dy = flat * scale
        if job.wants_row_sum:
            dy = torch.cat([dy, (-at_query[..., None] * scale).to(dy.dtype)], -1)
            at_query = torch.zeros_like(at_query)
        u = values_and_ones(job).flatten(0, 1)
        given = (job.q.flatten(0, 1), job.k.flatten(0, 1), u, self._decay, self._start, self._rows)
        grads = chunk_gradients(given, self.layout, dy[:, None], at_query=lambda place: at_query[:, place])
        made = (grads.q, grads.k, grads.u[..., :size], grads.decay, None if self.state is None else grads.state)
        return ReadGradients(*(None if x is None else x.unflatten(0, job.v.shape[:2]) for x in made))

    def _first_scale(self) -> Tensor:
        if self.job.log_scale is None or self.job.wants_row_sum:
            return torch.ones_like(self.pull)
        return torch.exp(self.job.log_scale.flatten(0, 1)[:, 0, :, None])


def _weights(chunk: Chunk) -> Tensor:
    """Between each position of the chunk and the earlier ones."""
    return chunk.mask_(chunk.series.value(chunk.products()))
