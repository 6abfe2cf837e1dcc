"""One token after a state, in few calls: on a CPU the calls around its products take longer than these.

What the general way finds out at every call is known once a state has taken its first token: the spec, the sizes, the
tables of its features. Where anything differs, or a number leaves the range, the general way is taken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from softmax_rnn.attention import nonpositive
from softmax_rnn.attention.arguments import Shape
from softmax_rnn.attention.buffer import Buffer
from softmax_rnn.attention.call import Call
from softmax_rnn.attention.constants import constant
from softmax_rnn.attention.epilogue import Output
from softmax_rnn.attention.features import factor_places, weight_column
from softmax_rnn.attention.fitting import LARGEST_LOG
from softmax_rnn.attention.host_sync import may_sync
from softmax_rnn.attention.parts import Exp, L2Norm, Polynomial
from softmax_rnn.attention.scores import log_bound_of
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.state import FixedState, GrowingState, State

_CPU, _FLOAT32 = torch.device("cpu"), torch.float32
LEAST = 1e-30
"""A row sum below it is left to the general way."""
_Step = tuple[Tensor, State]
_ON_NONPOSITIVE = frozenset(nonpositive.OnNonPositive)


def quick_step(
    spec: AttentionSpec, q: Tensor, k: Tensor, v: Tensor, state: object, on_nonpositive: str
) -> _Step | None:
    """A step from q (B, H, D), k and v, where it can be a quick one; its row sums are positive, so nothing is told."""
    if not isinstance(state, State) or state.quick is None or on_nonpositive not in _ON_NONPOSITIVE:
        return None
    return state.quick.run(spec, q, k, v, state) if state.quick.fits(spec, q, k, v) else None


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


@dataclass(frozen=True)
class QuickStep(ABC):
    """What is known of the steps of a state."""

    spec: AttentionSpec
    shape: Shape

    @property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        """Of q, k and v without an axis of time."""
        batch, keys = self.shape.batch, self.shape.kv_heads
        dim, width = self.shape.key_dim, self.shape.value_dim
        return (batch, self.shape.heads, dim), (batch, keys, dim), (batch, keys, width)

    def fits(self, spec: AttentionSpec, q: Tensor, k: Tensor, v: Tensor) -> bool:
        """Whether nothing differs from the step before."""
        for x, size in zip((q, k, v), self.sizes, strict=True):
            if type(x) is not Tensor or x.shape != size or x.dtype != _FLOAT32:
                return False
        if nonpositive.is_counting() or torch.is_autocast_enabled("cpu") or _needs_grad(q, k, v):
            return False
        return may_sync(q) and (spec is self.spec or spec == self.spec)

    @abstractmethod
    def run(self, spec: AttentionSpec, q: Tensor, k: Tensor, v: Tensor, state: State) -> _Step | None:
        """The output (B, H, E) and the state after it; None where the general way has to be taken."""

    def largest_key(self, state: State) -> float:
        """A bound of |k|, where it is asked for."""
        return 0.0


@dataclass(frozen=True)
class OfKeys(QuickStep):
    """exp over kept keys, divided by its row sum or by the L2 norm: one call of the platform's kernel."""

    scale: float

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

    def run(self, spec: AttentionSpec, q: Tensor, k: Tensor, v: Tensor, state: State) -> _Step | None:
        """softmax(q·k) v over all keys."""
        assert isinstance(state, GrowingState)
        if state.key_mask is not None or state.keys.dtype != _FLOAT32 or _needs_grad(state.keys, state.values):
            return None
        keys, key_buffer = Buffer.append(state.key_buffer, state.keys, k.unsqueeze(2))
        values, value_buffer = Buffer.append(state.value_buffer, state.values, v.unsqueeze(2))
        y = scaled_dot_product_attention(q.unsqueeze(2), keys, values, scale=self.scale)
        if spec.output_norm is not None:
            y = spec.output_norm.norm(Output(y), {})
        after = GrowingState(state.lengths + 1, {}, keys, values, None, None, key_buffer, value_buffer)
        return y.squeeze(2), after.taken(self)


@dataclass(frozen=True)
class OfFeatures(QuickStep):
    """Polynomials of orders 0 to 2, divided by their row sum: S ← S + φ(k) Uᵀ, y = φ(q) S, U = [v, 1].

    The sums over their features do not cancel, so the newest key can be read from the state as the others are.
    """

    places: tuple[Tensor, ...]
    """For each factor of a monomial, which entry of [1, x] it is."""
    ones: tuple[Tensor, Tensor]
    """What is put before the entries of queries and keys, and behind those of values."""
    weights: Tensor
    """Multinomials times coefficients, the scale of the queries included."""
    largest: float
    """The product of two norms up to which all sums are floats."""

    @classmethod
    def of(cls, spec: AttentionSpec, shape: Shape) -> OfFeatures | None:
        """None where a step needs more than polynomial features and a row sum."""
        score = spec.score.as_polynomial
        if score is None or spec != AttentionSpec(score=score):
            return None
        if score.degree > 2 or score.clamp is not None or score.needs_wide_state or not score.reads_key_norm:
            return None
        scale = shape.key_dim**-0.5 if score.scale is None else score.scale
        scaled = Polynomial(coefficients=tuple(c * scale**n for n, c in enumerate(score.coefficients)))
        batch, heads, kv_heads, dim = shape.batch, shape.heads, shape.kv_heads, shape.key_dim
        return cls(
            spec,
            shape,
            _places(score.orders, dim),
            (torch.ones(1, batch * (heads + kv_heads)), torch.ones(batch * kv_heads, 1, 1)),
            weight_column(scaled, dim, True, _FLOAT32, _CPU)[:, 0],
            _largest(scaled),
        )

    def run(self, spec: AttentionSpec, q: Tensor, k: Tensor, v: Tensor, state: State) -> _Step | None:
        """A write and a read of the state."""
        assert isinstance(state, FixedState) and state.key_norm is not None
        shape, norm, matrix = self.shape, state.key_norm, state.matrix
        if matrix.dtype != _FLOAT32 or not matrix.is_contiguous() or _needs_grad(matrix):
            return None
        rows, groups, width = shape.batch * shape.kv_heads, shape.heads // shape.kv_heads, shape.value_dim
        x = torch.cat([q.reshape(rows, groups, -1), k.reshape(rows, 1, -1)], 1)
        norms = torch.linalg.vector_norm(x, dim=-1)
        largest = float(norms.max())
        bound = max(state.largest_key, largest)
        if not bound * bound <= self.largest or largest != largest:
            return None
        one = torch.cat([self.ones[0], x.view(-1, shape.key_dim).t()])
        features = one.index_select(0, self.places[0])
        for place in self.places[1:]:
            features *= one.index_select(0, place)
        features = features.view(-1, rows, groups + 1)
        u, past = torch.cat([v.reshape(rows, 1, -1), self.ones[1]], 2), matrix.view(rows, -1, width + 1)
        new = torch.addcmul(past, features[..., groups:].transpose(0, 1), u)
        y = torch.bmm(features[..., :groups].permute(1, 2, 0) * self.weights, new)
        total = y[..., width:]
        if not float(total.min()) > LEAST:
            return None
        norm = torch.maximum(norm, norms[:, groups].view(norm.shape))
        after = FixedState(state.lengths + 1, {}, new.view(matrix.shape), norm).taken(self, bound)
        return (y[..., :width] / total).view(shape.batch, shape.heads, width), after

    def largest_key(self, state: State) -> float:
        """The largest |k| so far."""
        assert isinstance(state, FixedState) and state.key_norm is not None
        return float(state.key_norm.max())


@cache
def _quick(spec: AttentionSpec, shape: Shape) -> QuickStep | None:
    return OfKeys.of(spec, shape) or OfFeatures.of(spec, shape)


@constant
def _places(orders: tuple[int, ...], dim: int) -> tuple[Tensor, ...]:
    """The entries of [1, x] whose product each feature is: up to two factors."""
    first, second = [], []
    for n in orders:
        a, b = factor_places(dim, 2, _CPU) if n == 2 else (torch.arange(dim if n else 1), torch.full((1,), -1))
        first.append(a + 1 if n else a)
        second.append((b + 1).expand_as(a))
    return (torch.cat(first), torch.cat(second)) if max(orders) > 1 else (torch.cat(first),)


def _largest(score: Polynomial) -> float:
    """The largest |q||k| at which weights, and the powers of one side, are floats with room to spare."""
    limit, size = LARGEST_LOG[_FLOAT32], 1e9
    while size > 1 and log_bound_of(score, size) > limit:
        size /= 2
    return size
