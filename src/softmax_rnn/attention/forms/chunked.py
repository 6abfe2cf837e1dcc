"""A state between chunks, weights inside."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar

from softmax_rnn.attention.algebra import MAX_STATE_DEGREE, MAX_STATE_FEATURES, fixed_state_score, n_features
from softmax_rnn.attention.forms.form import (
    CALL,
    CHANNEL_CHUNK,
    EXP,
    MEMORY_PASS,
    PASS,
    PRODUCT,
    STEP_BY_STEP,
    Form,
    weight_time,
)
from softmax_rnn.attention.forms.fused import window_block
from softmax_rnn.attention.parts import NearKeys
from softmax_rnn.attention.situation import Situation
from softmax_rnn.attention.spec import AttentionSpec

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.contraction import Contraction, Sums
    from softmax_rnn.attention.fitting import Fitted

FEW_FEATURES = 128
"""Up to so many, many chunks are one call."""
CHUNK_NUMBERS = 5 * 2**18
"""Features of one side that are in memory at once, over the heads of a group."""


def chunk_length(features: int) -> int:
    """Positions per chunk of a long input: the more features, the more expensive the state between chunks."""
    return 64 if features <= 128 else 128


SPAN_NUMBERS = 2**20
"""Queries of a span: it and the tensors made of it should stay in the cache."""


def span_length(features: int, numbers: int) -> int:
    """Positions, of so many numbers each, that a long forward pass works on at once; a state costs time per span."""
    return max(SPAN_NUMBERS // numbers, 4 * features, 256) // 256 * 256


class Chunked(Form):
    """Linear in time, for scores with finite features."""

    name: ClassVar[str] = "chunked"
    reason: ClassVar[str] = "finite features: a state of fixed size is cheaper than all pairs"

    def refuse(self, spec: AttentionSpec, situation: Situation) -> str | None:
        if spec.over_time.step_by_step:
            return STEP_BY_STEP
        if spec.over_time.hides_the_rest:
            return "a window drops old keys, and a sum cannot forget them"
        if situation.traced and spec.write_rule is not None:
            return "a graph for any length has no write rules chunk by chunk"
        if situation.traced and spec.over_time.levels and not situation.has_fixed_past:
            return "a graph for any length has no levels chunk by chunk"
        if spec.polynomial is None:
            return spec.score.why_no_features
        if fixed_state_score(spec, situation.key_dim) is None:
            return f"more than {MAX_STATE_FEATURES:,} features per head, or a degree above {MAX_STATE_DEGREE}"
        return None

    def cost(self, spec: AttentionSpec, situation: Situation) -> float:
        """The state per position, the weights inside a chunk, the calls per chunk."""
        s, score = situation, spec.polynomial
        assert score is not None
        count, width = n_features(score, spec.width(s.key_dim)), s.value_dim + spec.wants_row_sum
        by_channel = spec.forget_gate is not None and spec.forget_gate.by_channel
        chunk = min(chunk_length(count), CHANNEL_CHUNK) if by_channel else chunk_length(count)
        reads = max(1.0, (s.keys // chunk).bit_length() / 2) if spec.over_time.levels else 1.0
        state = count * (width * (1 + reads) * PRODUCT + 2 * PASS * max(score.degree, 1))
        inside = min(chunk, s.queries) * ((s.key_dim + width) * PRODUCT + weight_time(spec))
        tokens = s.batch * s.queries * (s.heads + s.kv_heads) / 2
        chunks = ceil(s.queries / chunk) * max(1.0, s.batch * s.heads * count * chunk / CHUNK_NUMBERS)
        calls = chunks * (16 + 2 * spec.width(s.key_dim) * max(score.degree - 1, 0)) * CALL
        start = s.batch * s.heads * count * width * 3 * MEMORY_PASS  # the state is made, read and written at least once
        if count <= FEW_FEATURES and spec.forget_gate is None:  # many chunks at once
            calls /= 8
        if by_channel:
            calls, state = 2 * calls, state + s.key_dim * 2 * EXP
        wide = 2.5 if spec.score.needs_wide_state or by_channel else 1
        near, exp = 0.0, EXP
        if isinstance(spec.structure, NearKeys):  # the window beside the state: by the platform's kernel, or in blocks
            by_kernel = not s.needs_grad and spec.forget_gate is None
            near = spec.structure.near + (window_block(spec.structure.width) if by_kernel else 256)
            exp = EXP / 2 if by_kernel else EXP
        window = s.batch * s.heads * s.queries * near * ((s.key_dim + s.value_dim) * PRODUCT + exp)
        return (calls + start + window + tokens * (state + inside) * wide) * (3.5 if s.needs_grad else 1)

    def run(self, fitted: Fitted, state: Any, keep_state: bool) -> tuple[Sums, Any]:
        """Chunk by chunk; the state after the last one comes with it."""
        from softmax_rnn.attention.kernels.chunked import chunked
        from softmax_rnn.attention.kernels.level_slots import in_slots

        job = fitted.for_state()
        if job.levels is not None and not job.levels.known:
            return in_slots(job, state, keep_state)
        return chunked(job, state)

    def sums(self, job: Contraction) -> Sums:
        """In blocks, or by the platform's kernel where a window is all that restricts the keys."""
        from softmax_rnn.attention.kernels.banded import banded, can_band
        from softmax_rnn.attention.kernels.blockwise import blockwise

        return banded(job) if can_band(job) else blockwise(job)

    def write(self, fitted: Fitted, rate: Tensor, state: Tensor | None) -> Tensor:
        from softmax_rnn.attention.kernels.chunk_solver import ChunkSolver
        from softmax_rnn.attention.kernels.writing import solved

        return solved(ChunkSolver(fitted.for_state(), rate, state))
