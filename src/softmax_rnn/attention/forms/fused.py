"""The platform's softmax kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.algebra import is_positive_row_factor, is_scale_invariant
from softmax_rnn.attention.forms.blockwise import Blockwise
from softmax_rnn.attention.forms.card import on_card, time_on_card
from softmax_rnn.attention.forms.form import CALL, EXP, MEMORY_PASS, PASS, PRODUCT, FormWithKeys, visible_pairs
from softmax_rnn.attention.parts import RowSum, Window
from softmax_rnn.attention.situation import Situation
from softmax_rnn.attention.spec import AttentionSpec

if TYPE_CHECKING:
    from softmax_rnn.attention.contraction import Contraction, Sums


def window_block(width: int) -> int:
    """Queries per block of a window: few keys outside it, and few calls."""
    return min(max(width // 2, 64), 512)


class Fused(FormWithKeys):
    """softmax(x) v in place of Σ exp(x) v, where the row's factor is removed anyway."""

    name: ClassVar[str] = "fused"
    reason: ClassVar[str] = "the platform's softmax kernel computes this spec exactly"

    def refuse(self, spec: AttentionSpec, situation: Situation) -> str | None:
        """The kernel has no clamp and no decay, allows no padding between keys, and divides by the row sum."""
        reasons = {
            "its score is not exp": not spec.score.is_exponential,
            "its exp is clamped": spec.score.ceiling is not None,
            "the forget gate would need a T × T bias": spec.forget_gate is not None,
            "neither a plain row sum nor a scale-invariant norm removes the row's factor": not _normalises(spec),
            "padding lies between real keys": situation.holes,
            "levels behind masks that are not read are looked up in blocks": situation.unread
            and spec.over_time.levels > 0,
            "queries that continue a past need a mask": situation.keys > situation.queries > 1,
            "the query's own key is added after the ends of chunks": spec.over_time.chunk is not None,
            "a window over the keys of a past needs a mask": spec.structure is not None
            and situation.keys > situation.queries,
        }
        said = [reason for reason, holds in reasons.items() if holds]
        return "; ".join(said) or super().refuse(spec, situation)

    def cost(self, spec: AttentionSpec, situation: Situation) -> float:
        """Visible pairs only; packed and padded rows take a call per piece."""
        s = situation
        if on_card(s) and not s.unread:
            width = s.key_dim + s.value_dim
            numbers = s.batch * (s.heads * s.queries + s.kv_heads * s.keys) * width
            launches = 2 if s.pairs is None else 2 * s.batch
            # Levels need a bias per pair, and blocks of torch for the gradients.
            factor = 4 if spec.over_time.levels else 0.9
            return factor * time_on_card(s, launches, s.heads * visible_pairs(spec, s) * width, numbers)
        products = (s.key_dim + s.value_dim) * PRODUCT * (3.5 if s.needs_grad else 1)
        pairs = visible_pairs(spec, s)
        if s.unread:  # a mask of all pairs is read, visible or not
            return 8 * CALL + s.batch * s.heads * s.queries * s.keys * (products + EXP + MEMORY_PASS)
        calls = 4 * CALL * (s.batch if s.pairs is not None else 1)
        if pairs < s.visible_pairs and isinstance(spec.structure, Window):
            block = window_block(spec.structure.width)
            calls += 6 * CALL * s.queries / block
            pairs = s.batch * s.queries * (spec.structure.near + block)
        if spec.over_time.levels:  # a bias per pair; gradients come from blocks
            products += 4 * PASS
            calls += 8 * CALL * s.queries / 256 + (Blockwise().cost(spec, s) if s.needs_grad else 0)
        return calls + s.heads * pairs * (products + EXP / 2 * (2 if s.needs_grad else 1))

    def sums(self, job: Contraction) -> Sums:
        from softmax_rnn.attention.kernels.fused import fused

        return fused(job)


_ROW_SUM = RowSum()


def _normalises(spec: AttentionSpec) -> bool:
    """Whether softmax(x) v in place of Σ exp(x) v gives the same output."""
    if spec.normaliser == _ROW_SUM:
        return True
    return is_scale_invariant(spec) and (spec.normaliser is None or is_positive_row_factor(spec))
