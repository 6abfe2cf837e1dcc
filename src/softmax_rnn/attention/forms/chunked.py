"""Finite features in O(T) time: a state between chunks, the weights themselves inside a chunk.

For a polynomial score f(q·k) = φ(q)·φ(k) with F features, and U = [v, 1] (the 1 only where a row sum is asked
for), the state is S = Σ_j φ(k_j) U_jᵀ, an F × E' matrix a head: the hidden states H^(n) of all orders, one below
the other. A chunk of C positions from position a on, c the running log decay:

    y_i = e^(c_i − c_{a−1}) · φ(q_i) S  +  Σ_{a≤j≤i} f(q_i·k_j) e^(c_i − c_j) U_j
    S   ← e^(c_end − c_{a−1}) · S  +  Σ_j φ(k_j) e^(c_end − c_j) U_jᵀ

The backward pass walks twice, each time with one state: forwards for the queries (S again), backwards for keys
and values (the gradient of S). No state is stored, so its memory does not grow with T.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention import scores
from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.forms.blocks import Group, Scratch
from softmax_rnn.attention.parts import Polynomial
from softmax_rnn.attention.visibility import Visibility

CHUNK_NUMBERS = 2**22
"""Features of one side that are in work at once, over the heads of a group."""


def chunk_length(features: int) -> int:
    """Positions a chunk of a long input: the more features, the dearer the state between chunks."""
    return 64 if features <= 128 else 128 if features <= 1024 else 256


def values_and_ones(job: Contraction) -> Float[Tensor, "B K T U"]:
    """U = [v, 1], with 0 for keys that nobody sees."""
    u = job.v
    if job.wants_row_sum:
        u = torch.cat([u, u.new_ones(*u.shape[:-1], 1)], dim=-1)
    return u if job.seen.key_mask is None else u * job.seen.key_mask[:, None, :, None]


def split_sums(job: Contraction, y: Float[Tensor, "B K G Tq U"]) -> Sums:
    """The numerator and, where it was asked for, the row sum in the last column."""
    if job.wants_row_sum:
        return Sums(y[..., :-1], y[..., -1], job.log_scale)
    return Sums(y, None, job.log_scale)


def chunked(job: Contraction, state: Float[Tensor, "B K F U"] | None = None) -> tuple[Sums, Float[Tensor, "B K F U"]]:
    """The sums of `parallel`, continued from a state, and the state after the last position."""
    assert isinstance(job.score, Polynomial)
    features = SymmetricFeatures(job.score, job.k.shape[-1])
    u = values_and_ones(job)
    batch, kv_heads = u.shape[:2]
    setting = _Setting(features, job.seen, batch, kv_heads, job.q.shape[2], job.k.shape[2])
    if state is None:
        state = u.new_zeros(batch, kv_heads, features.count, u.shape[-1])
    tensors = (job.q, job.k, u, job.decay, job.rows, state.to(u.dtype))
    flat = [None if x is None else x.flatten(0, 1) for x in tensors]
    y, state = _Chunked.apply(*flat, setting)  # type: ignore[misc]
    assert isinstance(y, Tensor) and isinstance(state, Tensor)
    shape = (batch, kv_heads)
    return split_sums(job, y.unflatten(0, shape)), state.unflatten(0, shape)


@dataclass(frozen=True)
class _Setting:
    """The geometry: which positions make a chunk, which heads are worked on together."""

    features: SymmetricFeatures
    seen: Visibility
    batch: int
    kv_heads: int
    group_size: int
    time: int

    @cached_property
    def chunk(self) -> int:
        """Positions a chunk: more features make the state dearer, so fewer, longer chunks."""
        return min(chunk_length(self.features.count), self.time)

    def chunks(self) -> list[slice]:
        """The chunks in order."""
        return [slice(a, min(a + self.chunk, self.time)) for a in range(0, self.time, self.chunk)]

    def groups(self) -> list[Group]:
        """Heads in groups whose features fit the memory; one batch row a group when rows differ in masks."""
        per_head = self.features.count * self.chunk * self.group_size
        at_once = max(2, CHUNK_NUMBERS // per_head)
        heads = self.kv_heads
        span = self.batch * heads if self.seen.first_key is None else heads
        return [
            Group(slice(h, min(h + at_once, row + span)), slice(row // heads, (row + span - 1) // heads + 1))
            for row in range(0, self.batch * heads, span)
            for h in range(row, row + span, at_once)
        ]


@dataclass
class _Chunk:
    """One chunk of one group: its tensors, and how much of the past and of itself passes on."""

    place: slice
    q: Float[Tensor, "N R D"]
    """The queries of the G heads of a group side by side: R = G · C rows."""
    k: Float[Tensor, "N C D"]
    u: Float[Tensor, "N C U"]
    rows: Float[Tensor, "N R O"] | None
    memory: Scratch
    from_past: Float[Tensor, "N R 1"] | None
    """e^(c_i − c_{a−1}), 0 where the segment began inside the chunk."""
    into_state: Float[Tensor, "N C 1"] | None
    """e^(c_end − c_j), 0 where the segment ended inside the chunk."""
    keep: Float[Tensor, "N 1 1"] | None
    """e^(c_end − c_{a−1}), 0 where the last segment began inside the chunk."""
    inside: Float[Tensor, "N R C"] | None
    """e^(c_i − c_j) where i sees j, else 0; None for the plain lower triangle."""

    def query_features(self, features: SymmetricFeatures) -> Float[Tensor, "N F R"]:
        """φ(q) with multinomials and coefficients."""
        out = self.memory.block("query", self.q.shape[0], features.count, self.q.shape[1])
        return features.query(self.q.mT, self.rows, out)

    def key_features(self, features: SymmetricFeatures) -> Float[Tensor, "N F C"]:
        """φ(k)."""
        out = self.memory.block("key", self.k.shape[0], features.count, self.k.shape[1])
        return features.key(self.k.mT, out)

    def see_inside(self, weights: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
        """Weights between the positions of the chunk, in place: only what is seen, faded by the decay."""
        if self.inside is not None:
            return weights.mul_(self.inside)
        # The rows of each of the G heads are a lower triangle of their own.
        weights.view(weights.shape[0], -1, weights.shape[2], weights.shape[2]).tril_()
        return weights

    def advance(self, state: Tensor, features: SymmetricFeatures) -> Tensor:
        """The state after the chunk, in the memory of the one before it."""
        if self.keep is not None:
            state.mul_(self.keep)
        return state.baddbmm_(self.key_features(features), _times(self.u, self.into_state))


def _times(x: Tensor, factor: Tensor | None) -> Tensor:
    return x if factor is None else x * factor


@dataclass(frozen=True)
class _Inputs:
    q: Float[Tensor, "M G T D"]
    k: Float[Tensor, "M T D"]
    u: Float[Tensor, "M T U"]
    decay: Float[Tensor, "M T"] | None
    rows: Float[Tensor, "M G T O"] | None
    setting: _Setting

    def chunks(self, group: Group, places: Iterable[slice]) -> Iterator[_Chunk]:
        """The chunks of a group at these places."""
        heads = group.heads
        numbers = group.count * self.setting.features.count * self.setting.chunk * self.setting.group_size
        memory = Scratch(self.q, numbers)
        for place in places:
            yield _Chunk(
                place,
                self.q[heads, :, place].flatten(1, 2),
                self.k[heads, place],
                self.u[heads, place],
                None if self.rows is None else self.rows[heads, :, place].flatten(1, 2),
                memory,
                *self._passing(group, place),
            )

    def _passing(self, group: Group, place: slice) -> tuple[Tensor | None, ...]:
        """from_past, into_state, keep and inside of a chunk."""
        seen, dtype, device = self.setting.seen, self.q.dtype, self.q.device
        if self.decay is None and seen.first_key is None:
            return None, None, None, None
        size = place.stop - place.start
        count = group.heads.stop - group.heads.start
        now = torch.zeros(count, size, dtype=torch.float64, device=device)
        before = now[:, :1]
        if self.decay is not None:
            now = self.decay[group.heads, place]
            before = self.decay[group.heads, place.start - 1, None] if place.start else torch.zeros_like(now[:, :1])
        end = now[:, -1:]
        allowed = torch.ones(size, size, dtype=torch.bool, device=device).tril()
        # Masked before exp: a decay that would look into the future may overflow.
        log_inside = torch.where(allowed, now[:, :, None] - now[:, None, :], -torch.inf)
        from_past, into_state, keep = torch.exp(now - before), torch.exp(end - now), torch.exp(end - before)
        if seen.first_key is not None:
            first = seen.first_key[group.batches, place]
            begin, last = place.start, first[:, -1:]
            position = torch.arange(place.start, place.stop, device=device)
            from_past = from_past * (first < begin)
            into_state = into_state * (position >= last)
            keep = keep * (last < begin)
            log_inside = torch.where(position >= first[:, :, None], log_inside, -torch.inf)
        repeat = self.q.shape[1]
        return (
            from_past.to(dtype).repeat(1, repeat)[..., None],
            into_state.to(dtype)[..., None],
            keep.to(dtype)[..., None],
            torch.exp(log_inside).to(dtype).repeat(1, repeat, 1),
        )


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, u, decay, rows, state, setting: _Setting):  # type: ignore[override]
        inputs = _Inputs(q, k, u, decay, rows, setting)
        features, score = setting.features, setting.features.score
        y = q.new_empty(*q.shape[:3], u.shape[-1])
        end = torch.empty_like(state)
        for group in setting.groups():
            running = state[group.heads].clone()
            for chunk in inputs.chunks(group, setting.chunks()):
                weights = scores.value(score, torch.bmm(chunk.q, chunk.k.mT), chunk.rows)
                inside = torch.bmm(chunk.see_inside(weights), chunk.u)
                past = torch.bmm(chunk.query_features(features).mT, running)
                total = inside.add_(_times(past, chunk.from_past))
                y[group.heads, :, chunk.place] = total.unflatten(1, (q.shape[1], -1))
                running = chunk.advance(running, features)
            end[group.heads] = running
        ctx.save_for_backward(q, k, u, decay, rows, state, *((None, None) if decay is None else (y, end)))
        ctx.setting = setting
        ctx.set_materialize_grads(False)
        return y, end

    @staticmethod
    def backward(ctx, dy, d_end):  # type: ignore[override]
        q, k, u, decay, rows, state, y, end = ctx.saved_tensors
        inputs = _Inputs(q, k, u, decay, rows, ctx.setting)
        dy = q.new_zeros(*q.shape[:3], u.shape[-1]) if dy is None else dy
        d_end = torch.zeros_like(state) if d_end is None else d_end
        dq, dk, du = torch.empty_like(q), torch.empty_like(k), torch.empty_like(u)
        d_state = torch.empty_like(state)
        for group in ctx.setting.groups():
            _backward_queries(inputs, group, dy, state[group.heads].clone(), dq, dk, du)
            d_state[group.heads] = _backward_keys(inputs, group, dy, d_end[group.heads], dk, du)
        d_decay = None
        if decay is not None:
            d_decay = (dy.double() * y).sum((1, 3)) - (du.double() * u).sum(-1)
            d_decay[:, -1] += (d_end.double() * end).sum((1, 2))
            d_decay = d_decay.to(decay.dtype)
        return dq, dk, du, d_decay, None, d_state, None


def _backward_queries(
    inputs: _Inputs, group: Group, dy: Tensor, state: Tensor, dq: Tensor, dk: Tensor, du: Tensor
) -> None:
    """First walk: the gradient of the queries, and all gradients of the weights inside the chunks."""
    features, score = inputs.setting.features, inputs.setting.features.score
    for chunk in inputs.chunks(group, inputs.setting.chunks()):
        heads, place = group.heads, chunk.place
        dy_here = dy[heads, :, place].flatten(1, 2)
        x = torch.bmm(chunk.q, chunk.k.mT)
        dx = torch.bmm(dy_here, chunk.u.mT).mul_(chunk.see_inside(scores.slope(score, x, chunk.rows)))
        weights = chunk.see_inside(scores.value(score, x, chunk.rows))
        du[heads, place] = torch.bmm(weights.mT, dy_here)
        dk[heads, place] = torch.bmm(dx.mT, chunk.q)
        d_features = torch.bmm(state, _times(dy_here, chunk.from_past).mT)
        d_past = features.query_backward(chunk.q.mT.contiguous(), d_features, chunk.rows)
        total = torch.bmm(dx, chunk.k).add_(d_past.mT)
        dq[heads, :, place] = total.unflatten(1, (dq.shape[1], -1))
        state = chunk.advance(state, features)


def _backward_keys(
    inputs: _Inputs, group: Group, dy: Tensor, d_state: Tensor, dk: Tensor, du: Tensor
) -> Float[Tensor, "N F U"]:
    """Second walk, from the end: the gradients of keys and values through the state; returns that of the state."""
    features = inputs.setting.features
    for chunk in inputs.chunks(group, reversed(inputs.setting.chunks())):
        heads, place = group.heads, chunk.place
        key_features = chunk.key_features(features)
        du[heads, place] += _times(torch.bmm(key_features.mT, d_state), chunk.into_state)
        d_features = torch.bmm(d_state, _times(chunk.u, chunk.into_state).mT)
        dk[heads, place] += features.key_backward(chunk.k.mT.contiguous(), d_features).mT
        dy_past = _times(dy[heads, :, place].flatten(1, 2), chunk.from_past)
        step = torch.bmm(chunk.query_features(features), dy_past)
        d_state = step.add_(_times(d_state, chunk.keep))
    return d_state
