"""One position after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from softmax_rnn.attention.algebra import fixed_state_score, n_features
from softmax_rnn.attention.forms.form import CALL, MEMORY_PASS, Form
from softmax_rnn.attention.situation import Situation
from softmax_rnn.attention.spec import AttentionSpec

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.contraction import Contraction, Sums
    from softmax_rnn.attention.fitting import Fitted


class Recurrent(Form):
    """A step reads the state, and nothing else of the past."""

    name: ClassVar[str] = "recurrent"
    reason: ClassVar[str] = "a step at a time: only the state is read"

    def refuse(self, spec: AttentionSpec, situation: Situation) -> str | None:
        """It can compute everything, one call after another."""
        if situation.traced and situation.queries > 1:
            return "a graph for any length cannot go position by position"
        return None

    def cost(self, spec: AttentionSpec, situation: Situation) -> float:
        """The state once per position: the matrix, or all keys and values."""
        s = situation
        step = s.batch * s.heads
        if spec.over_time.step_by_step:
            return s.queries * (60 * CALL + step * spec.over_time.near * (s.key_dim + s.value_dim) * MEMORY_PASS)
        score = fixed_state_score(spec, s.key_dim)
        if score is not None:
            states = s.keys.bit_length() / 2 if spec.over_time.levels else 1
            step *= n_features(score, spec.width(s.key_dim)) * s.value_dim * 2 * states * MEMORY_PASS
        else:
            step *= s.keys * (s.key_dim + s.value_dim) * MEMORY_PASS / 2
        return s.queries * (30 * CALL + step) * (3 if s.needs_grad else 1)

    def run(self, fitted: Fitted, state: Any, keep_state: bool) -> tuple[Sums, Any]:
        """Through the features where the spec has a state of fixed size, else through the keys."""
        from softmax_rnn.attention.kernels.recurrent import through_features

        if fitted.has_fixed_state:
            return through_features(fitted.for_state(), state)
        return self.sums(fitted.for_keys()), None

    def sums(self, job: Contraction) -> Sums:
        from softmax_rnn.attention.kernels.recurrent import through_keys

        return through_keys(job)

    def write(self, fitted: Fitted, rate: Tensor, state: Tensor | None) -> Tensor:
        from softmax_rnn.attention.kernels.writing import through_features, through_keys

        if fitted.has_fixed_state:
            return through_features(fitted.for_state(), rate, state)
        return through_keys(fitted.for_keys(), rate)
