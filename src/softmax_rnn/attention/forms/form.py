"""What a form is: why it cannot compute a spec, what it costs, how it runs.

Planning needs no torch, so a form imports its kernel when it runs. The cost model counts multiplications and passes
over weights; its few rates are those of a CPU core pair, and `softmax-rnn bench attention` compares the choice with
the form that was measured to be fastest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from softmax_rnn.attention.situation import Situation
from softmax_rnn.attention.spec import AttentionSpec

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.contraction import Contraction, Sums
    from softmax_rnn.attention.fitting import Fitted

# Nanoseconds: a multiply-add pair of a matrix product, a pass over one weight, exp of one weight, one operator call.
PRODUCT = 0.016
PASS = 0.08
EXP = 0.7
CALL = 6_000.0
MEMORY_PASS = 0.35
"""A pass over weights that do not fit the cache."""
STEP_BY_STEP = "which keys are kept depends on the weights of earlier queries"
CHANNEL_CHUNK = 32
"""Positions between which the decays of channels are products of two factors."""


class Form(ABC):
    """An exact way to compute the contraction."""

    name: ClassVar[str]
    reason: ClassVar[str]
    """Why it is chosen, where it is the fastest."""
    is_literal: ClassVar[bool] = False
    """Whether it makes all weights at once, and solves a write rule at once."""

    @abstractmethod
    def refuse(self, spec: AttentionSpec, situation: Situation) -> str | None:
        """Why it cannot compute the spec, or None."""

    @abstractmethod
    def cost(self, spec: AttentionSpec, situation: Situation) -> float:
        """Roughly its time in nanoseconds; asked only where it does not refuse."""

    @abstractmethod
    def run(self, fitted: Fitted, state: Any, keep_state: bool) -> tuple[Sums, Any]:
        """The sums after the matrix of a fixed state (None: nothing yet), and the matrix after them where the spec
        has one and it is asked for. With levels it is a stack of them, `LevelSums`.
        """

    @abstractmethod
    def sums(self, job: Contraction) -> Sums:
        """The sums over a list of keys."""

    @abstractmethod
    def write(self, fitted: Fitted, rate: Tensor, state: Tensor | None) -> Tensor:
        """What a write rule puts in place of the values; the contraction is its read (see `attention.write`)."""


class FormWithKeys(Form):
    """A form that needs all keys."""

    def write(self, fitted: Fitted, rate: Tensor, state: Tensor | None) -> Tensor:
        from softmax_rnn.attention.kernels.block_solver import BlockSolver
        from softmax_rnn.attention.kernels.writing import solved

        return solved(BlockSolver(fitted.for_keys(), rate, None))

    def refuse(self, spec: AttentionSpec, situation: Situation) -> str | None:
        """After a state of fixed size there are none."""
        if spec.over_time.step_by_step and not self.is_literal:
            return STEP_BY_STEP
        if situation.traced and not self.is_literal:
            if spec.write_rule is not None:
                return "in a graph for any length, a write rule is solved for all positions at once"
            if spec.over_time.levels:
                return "in a graph for any length, levels cannot go block by block"
        return "the past is a state of fixed size; its keys are gone" if situation.has_fixed_past else None

    def run(self, fitted: Fitted, state: Any, keep_state: bool) -> tuple[Sums, Any]:
        """The sums; a matrix to go on with is one more product."""
        sums = self.sums(fitted.for_keys())
        if not (keep_state and fitted.has_fixed_state):
            return sums, None
        from softmax_rnn.attention.kernels.summing import summed

        return sums, summed(fitted.for_state())


def visible_pairs(spec: AttentionSpec, situation: Situation) -> int:
    """Pairs of a query and a key that it sees, per head, over the batch."""
    return spec.over_time.pairs(situation.visible_pairs, situation.batch * situation.queries)


def weight_time(spec: AttentionSpec) -> float:
    """Nanoseconds that the score and the decay take per weight, forward."""
    exponentials, passes = spec.score.work
    if spec.score.clamp is not None:
        passes += 1
    if spec.forget_gate is not None and not spec.forget_gate.by_channel:
        exponentials, passes = exponentials + 1, passes + 2
    if spec.over_time.levels:
        passes += 3
    return exponentials * EXP + passes * PASS
