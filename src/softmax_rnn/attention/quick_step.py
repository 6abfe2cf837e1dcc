"""One token after a state, in few calls: on a CPU the calls around its products take longer than these.

What the general way finds out at every call is known once a state has taken its first token: the spec, the sizes, the
tables of its features. Where anything differs, or a number leaves the range, the general way is taken.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import scaled_dot_product_attention

from softmax_rnn.attention import nonpositive
from softmax_rnn.attention.algebra import n_features
from softmax_rnn.attention.arguments import Shape
from softmax_rnn.attention.buffer import Buffer
from softmax_rnn.attention.call import Call
from softmax_rnn.attention.constants import constant, ordinary_tensors
from softmax_rnn.attention.features import factor_places, weight_column
from softmax_rnn.attention.fitting import LARGEST_LOG
from softmax_rnn.attention.host_sync import may_sync
from softmax_rnn.attention.parts import Exp, L2Norm, Polynomial
from softmax_rnn.attention.rownorm import unit
from softmax_rnn.attention.scores import log_bound_of
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.state import FixedState, GrowingState, State

_CPU, _FLOAT32 = torch.device("cpu"), torch.float32
LEAST = 1e-30
"""A row sum below it is left to the general way."""
MOST_FEATURES = 2**18
"""Of all heads of a step: with more, its products take longer than the calls around them."""
_Step = tuple[Tensor, State]
_ON_NONPOSITIVE = frozenset(nonpositive.OnNonPositive)


def quick_step(
    spec: AttentionSpec,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: object,
    on_nonpositive: str,
    *,
    axes: int,
    in_place: bool = False,
) -> _Step | None:
    """A step from q (B, H, D), k and v, or (B, H, 1, D), where it can be a quick one; all its row sums are positive."""
    quick = getattr(state, "quick", None)
    if quick is None or on_nonpositive not in _ON_NONPOSITIVE or not quick.fits(spec, q, k, v, axes):
        return None
    return quick.run(q, k, v, state, in_place)


def enable_quick_steps(call: Call, state: State, after: State) -> None:
    """Let later steps from both states be quick ones, where they can be."""
    if call.dtype != _FLOAT32 or call.q.device != _CPU or not may_sync(call.q):
        return
    quick = state.quick or _quick(call.spec, replace(call.shape, time=1))
    if quick is not None:
        largest = quick.largest_key(after)
        state.taken(quick, largest)
        after.taken(quick, largest)


def _needs_grad(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


class QuickStep(ABC):
    """What is known of the steps of a state."""

    def __init__(self, spec: AttentionSpec, shape: Shape) -> None:
        self.spec, self.shape = spec, shape
        heads, dims = (shape.heads, shape.kv_heads, shape.kv_heads), (shape.key_dim, shape.key_dim, shape.value_dim)
        self.sizes = {
            axes: tuple((shape.batch, n, *time, dim) for n, dim in zip(heads, dims, strict=True))
            for axes, time in ((3, ()), (4, (1,)))
        }
        """Of q, k and v, by their number of axes: without and with that of time."""

    def __reduce__(self) -> tuple[object, ...]:
        """A copy of a state shares it."""
        return _quick, (self.spec, self.shape)

    def fits(self, spec: AttentionSpec, q: Tensor, k: Tensor, v: Tensor, axes: int) -> bool:
        """Whether nothing differs from the step before."""
        if not (type(q) is type(k) is type(v) is Tensor) or (q.shape, k.shape, v.shape) != self.sizes[axes]:
            return False
        if not (q.dtype is k.dtype is v.dtype is _FLOAT32 and k.is_cpu and v.is_cpu and may_sync(q)):
            return False
        if nonpositive.is_counting() or torch.is_autocast_enabled("cpu") or _needs_grad(q, k, v):
            return False
        return spec is self.spec or spec == self.spec

    @abstractmethod
    def run(self, q: Tensor, k: Tensor, v: Tensor, state: State, in_place: bool) -> _Step | None:
        """The output with the axes of q, and the state after it; None where the general way has to be taken."""

    def largest_key(self, state: State) -> float:
        """A bound of |k|, where it is asked for."""
        return 0.0


class OfKeys(QuickStep):
    """exp over kept keys, divided by its row sum or by the L2 norm: one call of the platform's kernel."""

    def __init__(self, spec: AttentionSpec, shape: Shape, scale: float) -> None:
        super().__init__(spec, shape)
        self.scale = scale

    @classmethod
    def of(cls, spec: AttentionSpec, shape: Shape) -> OfKeys | None:
        """None where a step needs more, or heads share keys."""
        score = spec.score
        softmax, normed = (
            AttentionSpec(score=score),
            AttentionSpec(score=score, normaliser=None, output_norm=L2Norm()),
        )
        if not isinstance(score, Exp) or score.clamp is not None or spec not in (softmax, normed):
            return None
        if shape.heads != shape.kv_heads or shape.key_dim != shape.value_dim:
            return None
        return cls(spec, shape, shape.key_dim**-0.5 if score.scale is None else score.scale)

    def run(self, q: Tensor, k: Tensor, v: Tensor, state: State, in_place: bool) -> _Step | None:
        """softmax(q·k) v over all keys."""
        assert isinstance(state, GrowingState) and not in_place
        if state.key_mask is not None or state.keys.dtype != _FLOAT32 or _needs_grad(state.keys, state.values):
            return None
        timed = q.dim() == 4
        if not timed:
            q, k, v = q.unsqueeze(2), k.unsqueeze(2), v.unsqueeze(2)
        keys, key_buffer = Buffer.append(state.key_buffer, state.keys, k)
        values, value_buffer = Buffer.append(state.value_buffer, state.values, v)
        y = scaled_dot_product_attention(q, keys, values, scale=self.scale)
        if self.spec.output_norm is not None:
            y = unit(y)
        after = GrowingState(state.lengths + 1, {}, keys, values, None, None, key_buffer, value_buffer)
        return y if timed else y.squeeze(2), after.taken(self)


class OfFeatures(QuickStep):
    """Polynomials of orders 0 to 2, divided by their row sum: S ← S + φ(k) Uᵀ, y = φ(q) S, U = [v, 1].

    The sums over their features do not cancel, so the newest key can be read from the state as the others are.
    """

    def __init__(self, spec: AttentionSpec, shape: Shape, score: Polynomial) -> None:
        super().__init__(spec, shape)
        self.places = _places(score.orders, shape.key_dim)
        self.weights = weight_column(score, shape.key_dim, True, _FLOAT32, _CPU)[:, 0]
        """Multinomials times coefficients, the scale of the queries included."""
        self.memory = _Memories(shape, len(self.weights))
        self.largest = _largest(score)
        """The product of two norms up to which all sums are floats."""

    @classmethod
    def of(cls, spec: AttentionSpec, shape: Shape) -> OfFeatures | None:
        """None where a step needs more than polynomial features and a row sum, or has very many."""
        score = spec.score.as_polynomial
        if score is None or spec != AttentionSpec(score=score):
            return None
        if score.degree > 2 or score.clamp is not None or score.needs_wide_state or not score.reads_key_norm:
            return None
        if shape.batch * (shape.heads + shape.kv_heads) * n_features(score, shape.key_dim) > MOST_FEATURES:
            return None
        scale = shape.key_dim**-0.5 if score.scale is None else score.scale
        return cls(spec, shape, Polynomial(coefficients=tuple(c * scale**n for n, c in enumerate(score.coefficients))))

    def run(self, q: Tensor, k: Tensor, v: Tensor, state: State, in_place: bool) -> _Step | None:
        """A write and a read of the state."""
        assert isinstance(state, FixedState) and state.key_norm is not None
        here, norm, matrix = self.memory.of_thread, state.key_norm, state.matrix
        if matrix.dtype != _FLOAT32 or not matrix.is_contiguous() or _needs_grad(matrix):
            return None
        queries, keys, values, numerator, row_sum = here.by_axes[q.dim()]
        queries.copy_(q)
        keys.copy_(k)
        values.copy_(v)
        largest = vector_norm(here.entries, dim=-1, out=here.norms).max().item()
        bound = max(state.largest_key, largest)
        if not bound * bound <= self.largest or largest != largest:
            return None
        torch.index_select(here.one_and_entries, 1, self.places[0], out=here.features)
        here.features.mul_(here.one_and_entries.index_select(1, self.places[1]))
        here.q_features.mul_(self.weights)
        new = torch.addcmul(matrix, here.k_features, here.u)
        torch.bmm(here.q_features, new.view(here.size), out=here.y)
        if not row_sum.min().item() > LEAST:
            return None
        output = numerator / row_sum
        if in_place:
            matrix.copy_(new)
            torch.maximum(norm, here.k_norms, out=norm)
            state.lengths.add_(1)
            state.mark(fresh=False)
            return output, state.taken(self, bound)
        after = FixedState(state.lengths + 1, {}, new, torch.maximum(norm, here.k_norms))
        return output, after.taken(self, bound)

    def largest_key(self, state: State) -> float:
        """The largest |k| so far."""
        assert isinstance(state, FixedState) and state.key_norm is not None
        return float(state.key_norm.max())


class _Memories(threading.local):
    """One for each thread."""

    def __init__(self, shape: Shape, features: int) -> None:
        self.of_thread = _Memory(shape, features)


class _Memory:
    """Where a step computes, and the views of it, made once."""

    def __init__(self, shape: Shape, features: int) -> None:
        batch, heads, kv_heads, dim, width = shape.batch, shape.heads, shape.kv_heads, shape.key_dim, shape.value_dim
        queries, keys, groups = (batch, heads), (batch, kv_heads), heads // kv_heads
        ends = (batch * heads, batch * kv_heads)
        rows, both = batch * kv_heads, sum(ends)
        self.size = (rows, features, width + 1)
        with ordinary_tensors(), torch.device("cpu"):
            self.one_and_entries, self.features, self.norms, self.y, self.u = (
                torch.ones(size, dtype=_FLOAT32)
                for size in (
                    (both, 1 + dim),
                    (both, features),
                    (both,),
                    (rows, groups, width + 1),
                    (batch, kv_heads, 1, width + 1),
                )
            )
            self.entries = self.one_and_entries[:, 1:]
            q, k = self.entries.split(ends)
            q_features, k_features = self.features.split(ends)
            self.q_features, self.k_features = q_features.view(rows, groups, -1), k_features.view(*keys, -1, 1)
            self.k_norms = self.norms[batch * heads :].view(keys)
            y = self.y.view(*queries, -1)
            views = (q.view(*queries, dim), k.view(*keys, dim), self.u[:, :, 0, :width], y[..., :width], y[..., width:])
        self.by_axes = {3: views, 4: tuple(x.unsqueeze(2) for x in views)}
        """Places of q, k and v, then those of numerator and row sum."""


@lru_cache(64)
def _quick(spec: AttentionSpec, shape: Shape) -> QuickStep | None:
    return OfKeys.of(spec, shape) or OfFeatures.of(spec, shape)


@constant
def _places(orders: tuple[int, ...], dim: int) -> tuple[Tensor, Tensor]:
    """The entries of [1, x] whose product each feature is."""
    first, second = [], []
    for n in orders:
        a, b = factor_places(dim, 2, _CPU) if n == 2 else (torch.arange(dim if n else 1), torch.full((1,), -1))
        first.append(a + 1 if n else a)
        second.append((b + 1).expand_as(a))
    return torch.cat(first), torch.cat(second)


def _largest(score: Polynomial) -> float:
    """The largest |q||k| at which weights, and the powers of one side, are floats with room to spare."""
    limit, size = LARGEST_LOG[_FLOAT32], 1e9
    while size > 1 and log_bound_of(score, size) > limit:
        size /= 2
    return size
