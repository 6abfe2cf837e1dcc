"""Levels of the past, each with its weight and its own sums."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction
from softmax_rnn.attention.fitting import KeySummary
from softmax_rnn.attention.levels import LevelSums, LevelWeights, positions
from softmax_rnn.attention.parts import Levels
from softmax_rnn.attention.start import Start
from softmax_rnn.attention.state import State
from softmax_rnn.attention.structures.whole import WholePast
from softmax_rnn.attention.work import Positions, Work


@dataclass(frozen=True)
class LevelState(State):
    """The sums over the blocks of a past by level, about log₂ of its length many, and what the score knows of it."""

    comes_and_goes: ClassVar[bool] = True
    level: dict[int, Float[Tensor, "B K F U"]]
    """At most as many as there are levels but the first; about half of the binary digits of the length are 1."""
    factor: dict[int, Shaped[Tensor, "B M 1 1"]] = field(default_factory=dict)
    """What is left of them; absent where nothing decays."""
    key_norm: Float[Tensor, "B K"] | None = None
    extent: Float[Tensor, "B K S"] | None = None

    @property
    def summed(self) -> tuple[Any, KeySummary]:
        return LevelSums(self.level, self.factor), KeySummary(self.key_norm, self.extent)

    def overwrite(self, after: State) -> None:
        """The same; levels that come for the first time get a place."""
        for level, x in after.summed[0].sums.items():
            if level not in self.level:
                self.level[level] = torch.empty_like(x)
        super().overwrite(after)


@dataclass(frozen=True)
class LevelledPast(WholePast):
    """λ of the level multiplies each weight."""

    structure: Levels

    def start(self, start: Start) -> State:
        if start.score is None:
            return super().start(start)
        matrix, *known = start.sums()
        return LevelState(*start.carried(), {1: matrix}, {}, *known)

    def _after(self, work: Work, matrix: Any, known: KeySummary) -> State:
        return LevelState(*work.carried(), matrix.sums, matrix.factors, known.key_norm, known.extent)

    def prepared(self, job: Contraction, now: Positions) -> Contraction:
        shape, state, counts = now.call.shape, now.state, now.counts
        if now.listed is not None:
            counts = now.whole.lengths(shape.batch, now.keys, counts.device)
        weights = self.structure.weights(now.call.tensors).unflatten(1, job.q.shape[1:3])
        goes_on = state is not None and not state.grows and (not state.fresh or shape.time == 1)
        counted = now.whole.is_plain and not goes_on
        return replace(job, levels=LevelWeights(weights, positions(now.whole, counts), counted))
