"""Kernels for CUDA and ROCm cards: blockwise, chunked and one step, whichever is cheapest."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.algebra import fixed_state_score, n_features
from softmax_rnn.attention.forms.card import on_card, time_on_card
from softmax_rnn.attention.forms.form import Form, visible_pairs
from softmax_rnn.attention.parts import Levels, NearFar, Window
from softmax_rnn.attention.situation import Situation
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.installation import from_extra

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.contraction import Contraction, Sums
    from softmax_rnn.attention.fitting import Fitted

MAX_DIM = 256
MAX_DEGREE = 8
"""Float32 sums of higher orders cancel."""
MAX_STATE_DEGREE = 2
"""Features of degree 2 are products of two columns, which a kernel makes in registers."""
CHUNK = 512
"""Positions between two states."""
STATE_PAYS = 2.75
"""All pairs of T positions cost as much as a state of F features when T is this many times F."""
WALKS = 64
"""From so many heads and batch rows on, a linear attention is one walk per head: inputs once, outputs once."""
INTERPRETED = 1e5
"""How many times slower than a card the interpreter is, at least."""


class Triton(Form):
    """Weights and features are made in registers; nothing but inputs, outputs and states goes through memory."""

    name: ClassVar[str] = "triton"
    reason: ClassVar[str] = "kernels that make weights and features in registers"

    def refuse(self, spec: AttentionSpec, situation: Situation) -> str | None:
        s = situation
        return _no_place(s) or _no_kernel(spec, s) or (_no_state(spec, s) if s.has_fixed_past else None)

    def cost(self, spec: AttentionSpec, situation: Situation) -> float:
        """Products and numbers through memory; the interpreter is slower than anything."""
        s = situation
        width = s.value_dim + spec.width(s.key_dim)
        numbers = s.batch * (s.heads * s.queries + s.kv_heads * s.keys) * width
        launches, products, keys = 2.0 * max(spec.over_time.levels, 1), s.heads * visible_pairs(spec, s) * width, s.keys
        if _through_state(spec, s):
            score = fixed_state_score(spec, s.key_dim)
            assert score is not None
            features = n_features(score, spec.width(s.key_dim))
            inside = min(CHUNK, s.queries) / 2 + spec.over_time.near
            products = s.batch * s.heads * s.queries * (2 * features * s.value_dim * 4 / 3 + inside * width)
            numbers += 2 * s.batch * s.heads * features * s.value_dim * (s.queries / CHUNK + 1)
            launches, keys = 2.0 if s.queries == 1 else 8.0, min(s.queries, CHUNK)
        return time_on_card(s, launches, products, numbers, keys) * (1 if on_card(s) else INTERPRETED)

    def run(self, fitted: Fitted, state: Tensor | None, keep_state: bool) -> tuple[Sums, Tensor | None]:
        from softmax_rnn.attention.kernels.triton.dispatch import run

        return run(fitted, state, keep_state)

    def sums(self, job: Contraction) -> Sums:
        from softmax_rnn.attention.kernels.triton.dispatch import with_keys

        return with_keys(job)

    def write(self, fitted: Fitted, rate: Tensor, state: Tensor | None) -> Tensor:
        raise NotImplementedError("a write rule has no kernel, so `refuse` does not let it come here")


def has_kernel(spec: AttentionSpec, dim: int) -> bool:
    """Whether the kernels know a spec with heads of this dimension, wherever they would run."""
    return _no_kernel(spec, Situation(key_dim=dim, value_dim=dim)) is None


def _no_place(s: Situation) -> str | None:
    """Why no kernel can run there."""
    if not _installed():
        return f"Triton is not installed; on Linux it comes with the extra gpu ({from_extra('gpu')})"
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if s.device == "cpu" and not interpreted:
        return (
            "its kernels need a CUDA or ROCm card; TRITON_INTERPRET=1 before Python starts runs them on a CPU, slowly"
        )
    if s.device not in ("cpu", "cuda"):
        return f"its kernels run on CUDA and ROCm cards, not on {s.device}"
    if s.traced:
        return "its kernels are not operators of traced graphs"
    if s.dtype == "float64":
        return "its sums are float32, the call is float64"
    return None


def _no_kernel(spec: AttentionSpec, s: Situation) -> str | None:
    """Which part has no kernel."""
    score, widest = spec.score, max(spec.width(s.key_dim), s.value_dim)
    if spec.write_rule is not None:
        return "a write rule solves a system of equations per chunk, which has no kernel"
    if spec.forget_gate is not None and spec.forget_gate.by_channel:
        return "a decay per channel has no kernel"
    if spec.feature_map is not None and spec.feature_map.always_float64:
        return "its sums are float32, and calls with this feature map are float64"
    if spec.structure is not None and type(spec.structure) not in (Window, NearFar, Levels):
        return f"the structure {spec.structure.kind} has no kernel; windows, near_far and levels do"
    if isinstance(spec.structure, NearFar) and spec.structure.centred:
        return "a far part that is expanded at its mean has no kernel"
    polynomial = score.as_polynomial
    if score.ceiling != score.clamp or not (score.is_exponential or polynomial is not None):
        return f"the score {score.kind} has no kernel"
    if polynomial is not None and not 1 <= polynomial.degree <= MAX_DEGREE:
        return f"its kernels know polynomials of degree 1 to {MAX_DEGREE}: float32 sums of higher orders cancel"
    if polynomial is not None and polynomial.degree > 1 and score.clamp is not None:
        return "a clamped polynomial can leave the range of float32"
    if widest > MAX_DIM:
        return f"its tiles hold dimensions up to {MAX_DIM}, not {widest}"
    return None


def _no_state(spec: AttentionSpec, s: Situation) -> str | None:
    """Why a state of fixed size cannot be continued."""
    if spec.over_time.levels:
        return "a state per level has no kernel"
    score = fixed_state_score(spec, s.key_dim)
    if score is None or score.degree > MAX_STATE_DEGREE:
        return f"its kernels know states up to degree {MAX_STATE_DEGREE}"
    if spec.score.needs_wide_state:
        return "the state of this score is float64"
    return None


def _through_state(spec: AttentionSpec, s: Situation) -> bool:
    """Whether the outputs come from states between chunks."""
    score = fixed_state_score(spec, s.key_dim)
    if score is None or _no_state(spec, s):
        return False
    return s.has_fixed_past or s.queries > STATE_PAYS * n_features(score, spec.width(s.key_dim))


@cache
def _installed() -> bool:
    try:
        return importlib.util.find_spec("triton") is not None
    except ImportError:
        return False
