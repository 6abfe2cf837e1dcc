"""All weights of all pairs in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.forms.card import on_card, time_on_card
from softmax_rnn.attention.forms.form import CALL, CHANNEL_CHUNK, EXP, MEMORY_PASS, PRODUCT, FormWithKeys, weight_time
from softmax_rnn.attention.situation import Situation
from softmax_rnn.attention.spec import AttentionSpec

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.contraction import Contraction, Sums
    from softmax_rnn.attention.fitting import Fitted


class Parallel(FormWithKeys):
    """The equation, computed as written."""

    name: ClassVar[str] = "parallel"
    reason: ClassVar[str] = "few positions: one pass over all weights is cheapest"
    is_literal: ClassVar[bool] = True

    def refuse(self, spec: AttentionSpec, situation: Situation) -> str | None:
        """Products whose channels decay are made piece by piece."""
        if situation.traced and spec.forget_gate is not None and spec.forget_gate.by_channel:
            return "a graph for any length cannot go position by position"
        return super().refuse(spec, situation)

    def cost(self, spec: AttentionSpec, situation: Situation) -> float:
        """All pairs, hidden ones too, with every pass through memory."""
        s = situation
        pairs = s.heads * s.batch * s.queries * s.keys // (spec.over_time.chunk or 1)
        if on_card(s) and s.queries == 1:
            return time_on_card(s, 15, pairs * (s.key_dim + s.value_dim), 8 * pairs)
        products = (s.key_dim + s.value_dim) * PRODUCT * (3 if s.needs_grad else 1)
        passes = weight_time(spec) + 8 * MEMORY_PASS
        if spec.forget_gate is not None and spec.forget_gate.by_channel:  # float64, all keys anew per block of queries
            products, passes = 2 * products, passes + s.key_dim / CHANNEL_CHUNK * (EXP + 3 * MEMORY_PASS)
        steps = s.queries if spec.over_time.step_by_step else 1
        return 15 * CALL * steps + pairs * (products + passes * (2.5 if s.needs_grad else 1))

    def sums(self, job: Contraction) -> Sums:
        from softmax_rnn.attention.kernels.parallel import parallel

        return parallel(job)

    def write(self, fitted: Fitted, rate: Tensor, state: Tensor | None) -> Tensor:
        from softmax_rnn.attention.kernels.writing import literally

        return literally(fitted.for_keys(), rate)
