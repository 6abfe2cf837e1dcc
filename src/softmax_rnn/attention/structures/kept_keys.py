"""A fixed budget of keys: what a query sees depends on the weights of earlier ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.contraction import Sums
from softmax_rnn.attention.parts import KeptKeys
from softmax_rnn.attention.state import Start, State
from softmax_rnn.attention.structures.kept_walk import through_kept_keys
from softmax_rnn.attention.structures.kept_weights import all_weights
from softmax_rnn.attention.structures.whole import WholePast
from softmax_rnn.attention.work import Work
from softmax_rnn.errors import InputError


@dataclass(frozen=True)
class KeptState(State):
    """Keys and values of sinks, kept keys and window, each in its place, with their masses; the far sums beside."""

    keys: Float[Tensor, "B K N D"]
    values: Float[Tensor, "B K N E"]
    mass: Float[Tensor, "B K N"]
    """The sum of the weights that each key has had so far."""
    matrix: Float[Tensor, "B K F U"] | None = None
    key_sum: Float[Tensor, "B K D"] | None = None
    """Σ k of the folded ones, where the polynomial is expanded at their mean."""


@dataclass(frozen=True)
class KeptKeysPast(WholePast):
    """exp on the keys of the budget, the polynomial on those that are folded."""

    structure: KeptKeys

    def start(self, start: Start) -> State:
        if start.score is None and start.spec.polynomial is not None:
            raise InputError("structure: the folded keys of kept_keys need a state of fixed size; lower the degree")
        near, centred, dim = self.structure.near, self.structure.centred, start.shape.key_dim
        places = (start.zeros(near, dim), start.zeros(near, start.shape.value_dim), start.zeros(near))
        matrix = None if start.score is None else start.sums(wide=centred)[0]
        key_sum = start.zeros(dim, dtype=torch.float64) if centred else None
        return KeptState(*start.carried(), *places, matrix, key_sum)

    def run(self, work: Work) -> tuple[Sums, State | None]:
        """All weights at once where the form does so, else one position after the other."""
        now, call, job = work.now, work.now.call, work.job
        before = call.fresh_state() if now.state is None else now.state
        assert isinstance(before, KeptState)
        if work.form.is_literal:
            sums, after = all_weights(job, self.structure, None if now.state is None else before)
        else:
            sums, after = through_kept_keys(job, self.structure, now.new.key_mask, before)
        if now.state is None or after is None:
            return sums, None
        lengths, running = work.carried()
        keys, values = call.kept(after.keys), call.kept(after.values)
        return sums, replace(after, lengths=lengths, running=running, keys=keys, values=values)

    def cannot_lose(self, state: State, count: int) -> str | None:
        return "which keys are kept depends on all positions, so the last ones cannot be removed"
