"""All keys of the segment up to the query: the default, and what other structures differ from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softmax_rnn.attention.call import Call
from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.fitting import KeySummary
from softmax_rnn.attention.host_sync import may_sync
from softmax_rnn.attention.parts import Structure
from softmax_rnn.attention.start import Start
from softmax_rnn.attention.state import FixedState, GrowingState, State
from softmax_rnn.attention.visibility import Visibility
from softmax_rnn.attention.work import Positions, Work


@dataclass(frozen=True)
class WholePast:
    """How a structure is computed: what a query sees, the contraction from forms, the state before and after."""

    structure: Structure

    def start(self, start: Start) -> State:
        """The state before the first position."""
        if start.score is None:
            return GrowingState(*start.carried(), *start.lists(start.features))
        return FixedState(*start.carried(), *start.sums())

    def has_sums(self, state: State, time: int) -> bool:
        """Whether keys may have been summed up before ``time`` new positions."""
        # One position goes through the state anyway: whether it is empty need not be known.
        return not state.grows and (time == 1 or (not state.fresh and longer(state, 0)))

    def listed(self, state: State) -> GrowingState | None:
        """The keys of a state that stand before the new ones in the contraction."""
        return state.listed

    def seen(self, whole: Visibility, batch: int, keys: int, device: torch.device) -> Visibility:
        """Which of all keys a position sees."""
        return whole

    def keys(self, call: Call, k: Tensor) -> Tensor:
        """Keys behind the feature map as the contraction takes them."""
        return k

    def prepared(self, job: Contraction, now: Positions) -> Contraction:
        """The contraction with what the structure adds to it."""
        return job

    def run(self, work: Work) -> tuple[Sums, State | None]:
        """The contraction, and the state after it where there was one before."""
        sums, matrix, known = work.contract(work.job, work.summed)
        if work.now.state is None:
            return sums, None
        if matrix is None:
            return sums, self.trimmed(GrowingState(*work.lists()))
        return sums, self._after(work, matrix, known)

    def _after(self, work: Work, matrix: Any, known: KeySummary) -> State:
        return FixedState(*work.carried(), matrix, known.key_norm, known.extent)

    def trimmed(self, state: GrowingState) -> GrowingState:
        """Without keys that no later query sees, once there are enough of them to be worth a copy."""
        return state

    def cannot_lose(self, state: State, count: int) -> str | None:
        """Why the last positions cannot be taken back, or None."""
        return None if state.grows else "a state of fixed size sums over all positions; the last ones cannot be removed"


def longer(state: State, count: int) -> bool:
    """Whether more than ``count`` keys may have been seen."""
    return not may_sync(state.lengths) or bool((state.lengths > count).any())
