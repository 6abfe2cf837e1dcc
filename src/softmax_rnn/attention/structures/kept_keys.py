"""A fixed budget of keys: what a query sees depends on the weights of earlier ones.

A state has places for sinks, kept keys and a ring for the window, and far sums:

    places   0 … s−1 sinks      s … s+M−1 kept      s+M … s+M+w−1 window

Key number n of a row takes a place of the ring. The key that it pushes out takes a free place among the kept ones, or
that of the one with the smallest mass, which is folded into the far state; if its own mass is the smallest, it is
folded itself. Places and masses differ by head. Padding writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softmax_rnn.attention.centre import moved_coefficients
from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.parts import KeptKeys
from softmax_rnn.attention.start import Start
from softmax_rnn.attention.state import State
from softmax_rnn.attention.structures.kept_weights import all_weights
from softmax_rnn.attention.structures.whole import WholePast
from softmax_rnn.attention.work import Work
from softmax_rnn.errors import InputError


@dataclass(frozen=True)
class KeptState(State):
    """Keys and values of sinks, kept keys and window, each in its place, with their masses; the far sums beside."""

    keys: Float[Tensor, "B K N D"]
    values: Float[Tensor, "B K N E"]
    mass: Float[Tensor, "B K N"]
    """The sum of the weights that each key has had so far."""
    matrix: Float[Tensor, "B K F U"] | None = None
    key_sum: Float[Tensor, "B K D"] | None = None
    """Σ k of the folded ones, where the polynomial is expanded at their mean."""


@dataclass(frozen=True)
class KeptKeysPast(WholePast):
    """exp on the keys of the budget, the polynomial on those that are folded."""

    structure: KeptKeys

    def start(self, start: Start) -> State:
        if start.score is None and start.spec.polynomial is not None:
            raise InputError("structure: the folded keys of kept_keys need a state of fixed size; lower the degree")
        near, centred, dim = self.structure.near, self.structure.centred, start.shape.key_dim
        places = (start.zeros(near, dim), start.zeros(near, start.shape.value_dim), start.zeros(near))
        matrix = None if start.score is None else start.sums()[0]
        key_sum = start.zeros(dim, dtype=torch.float64) if centred else None
        return KeptState(*start.carried(), *places, matrix, key_sum)

    def run(self, work: Work) -> tuple[Sums, State | None]:
        """All weights at once where the form does so, else one position after the other."""
        now, call = work.now, work.now.call
        before = call.fresh_state() if now.state is None else now.state
        assert isinstance(before, KeptState)
        if work.form.is_literal:
            sums, after = all_weights(work.job, self.structure, None if now.state is None else before)
        else:
            sums, after = _one_by_one(work, self.structure, before)
        if now.state is None or after is None:
            return sums, None
        lengths, running = work.carried()
        keys, values = call.kept(after.keys), call.kept(after.values)
        return sums, replace(after, lengths=lengths, running=running, keys=keys, values=values)

    def cannot_lose(self, state: State, count: int) -> str | None:
        return "which keys are kept depends on all positions, so the last ones cannot be removed"


def _one_by_one(work: Work, structure: KeptKeys, state: KeptState) -> tuple[Sums, KeptState]:
    """The sums of the new positions, and the state after them."""
    job, real, rows = work.job, work.now.new.key_mask, []
    walk = _Walk(job, structure, state)
    counts, first = state.lengths, job.visibility.first_key
    for t in range(job.q.shape[3]):
        if first is not None:
            begins = first[:, t] == t
            counts = counts.masked_fill(begins, 0)
            walk.forget(begins)
        here = None if real is None else real[:, t]
        walk.enter(t, counts, here)
        counts = counts + 1 if here is None else counts + here
        rows.append(walk.read(t, counts, here))
    numerator, row_sum, scale = (torch.stack(x, dim=3) for x in zip(*rows, strict=True))
    keys, values, mass = walk.places.split([job.k.shape[-1], job.v.shape[-1], 1], dim=-1)
    after = replace(state, keys=keys, values=values, mass=mass[..., 0], matrix=walk.matrix, key_sum=walk.key_sum)
    return Sums(numerator, row_sum, scale), after


class _Walk:
    """The places, (key, value, mass) side by side, and the far state; both move on from step to step."""

    def __init__(self, job: Contraction, structure: KeptKeys, state: KeptState) -> None:
        self.job, self.structure = job, structure
        dtype, device = job.k.dtype, job.k.device
        self.places = torch.cat([state.keys.to(dtype), state.values.to(dtype), state.mass[..., None].to(dtype)], dim=-1)
        self.matrix, self.key_sum = state.matrix, state.key_sum
        self.new = torch.cat([job.k, job.v, job.v.new_zeros(*job.v.shape[:-1], 1)], dim=-1)
        polynomial = job.score.finite_features
        self.features = None if polynomial is None else SymmetricFeatures(polynomial, job.k.shape[-1])
        self.rows = torch.arange(job.k.shape[0], device=device)[:, None]
        self.heads = torch.arange(job.k.shape[1], device=device)[None]
        self.place = torch.arange(structure.near, device=device)
        # What nobody else holds may be overwritten, unless a backward pass needs it.
        self.in_place = not (torch.is_grad_enabled() and any(x.requires_grad for x in (job.q, self.places, self.new)))
        self.owns_matrix = False

    def forget(self, begins: Bool[Tensor, " B"]) -> None:
        """A new segment: its places are empty by their count."""
        if self.matrix is not None:
            self.matrix = self.matrix.masked_fill(begins[:, None, None, None], 0)
        if self.key_sum is not None:
            self.key_sum = self.key_sum.masked_fill(begins[:, None, None], 0)

    def enter(self, t: int, counts: Int[Tensor, " B"], here: Bool[Tensor, " B"] | None) -> None:
        """Key t takes its place; what it pushes out is kept, or something else is folded."""
        s = self.structure
        late = (counts - s.sinks)[:, None]
        place = torch.where(late < 0, counts[:, None], s.sinks + s.kept + late % s.width)
        leaves = late >= s.width if here is None else (late >= s.width) & here[:, None]
        self._keep(place, late - s.width, leaves)
        self._put(place, self.new[:, :, t], None if here is None else here[:, None])

    def _keep(self, place: Int[Tensor, "B 1"], free: Int[Tensor, "B 1"], leaves: Bool[Tensor, "B 1"]) -> None:
        s = self.structure
        out = self.places[self.rows, self.heads, place]
        least, which = self.places[:, :, s.sinks : s.sinks + s.kept, -1].min(-1)
        full = free >= s.kept
        goes = s.sinks + torch.where(full, which, free.clamp(0, s.kept - 1))
        stays_out = full & (out[..., -1] < least)
        if self.matrix is not None:
            folded = torch.where(stays_out[..., None], out, self.places[self.rows, self.heads, goes])
            self._fold(folded, leaves & full)
        self._put(goes, out, leaves & ~stays_out)

    def _put(self, place: Tensor, entry: Float[Tensor, "B K W"], where: Tensor | None) -> None:
        at = (self.rows, self.heads, place)
        if where is not None:
            entry = torch.where(where[..., None], entry, self.places[at])
        self.places = self.places.index_put_(at, entry) if self.in_place else self.places.index_put(at, entry)

    def _fold(self, entry: Float[Tensor, "B K W"], where: Bool[Tensor, "B 1"]) -> None:
        """S + φ(k) [v, 1]ᵀ."""
        assert self.features is not None and self.matrix is not None
        dim = self.job.k.shape[-1]
        entry = entry.to(self.matrix.dtype)
        if self.key_sum is not None:
            self.key_sum = self.key_sum + entry[..., :dim] * where[..., None]
        key = self.features.key(entry[..., :dim].flatten(0, 1)[..., None]).unflatten(0, entry.shape[:2])
        u = torch.cat([entry[..., dim:-1], torch.ones_like(entry[..., :1])], dim=-1) * where[..., None]
        if self.in_place and self.owns_matrix:
            self.matrix.addcmul_(key, u[:, :, None])
        else:
            self.matrix, self.owns_matrix = torch.addcmul(self.matrix, key, u[:, :, None]), True

    def read(self, t: int, counts: Int[Tensor, " B"], here: Bool[Tensor, " B"] | None) -> tuple[Tensor, Tensor, Tensor]:
        """Numerator, row sum and scale of query t; its exact weights are added to the masses."""
        dim, q = self.job.k.shape[-1], self.job.q[:, :, :, t]
        x = q @ self.places[..., :dim].mT
        x = x.masked_fill(~self._filled(counts)[:, None, None], -torch.inf)
        largest = x.detach().amax(-1, keepdim=True)
        largest = largest.masked_fill(largest == -torch.inf, 0)
        weights = torch.exp(x - largest)
        total = weights.sum(-1)
        self._look(weights.detach() / total.detach().clamp(min=1e-30)[..., None], here)
        scale, numerator = largest[..., 0], weights @ self.places[..., dim:-1]
        if self.matrix is None:
            return numerator, total, scale
        assert self.features is not None
        wide, rows, far_scale = q.to(self.matrix.dtype), None, torch.zeros_like(scale)
        if self.key_sum is not None:
            folded = (counts - self.structure.near).clamp(min=1)[:, None, None]
            far_scale = torch.einsum("bkgd,bkd->bkg", wide, self.key_sum / folded)
            rows = moved_coefficients(self.features.score.coefficients, far_scale).flatten(0, 2)[:, None]
        features = self.features.query(wide.flatten(0, 2)[..., None], rows)
        far = features[..., 0].unflatten(0, q.shape[:3]) @ self.matrix
        higher = torch.maximum(scale, far_scale)
        exact, rest = torch.exp(scale - higher), torch.exp(far_scale - higher)
        numerator = numerator * exact[..., None] + far[..., :-1] * rest[..., None]
        return numerator, total * exact + far[..., -1] * rest, higher

    def _look(self, parts: Float[Tensor, "B K G N"], here: Bool[Tensor, " B"] | None) -> None:
        mass = parts.sum(2)
        if here is not None:
            mass = mass * here[:, None, None]
        if self.in_place:
            self.places[..., -1] += mass
        else:
            self.places = torch.cat([self.places[..., :-1], self.places[..., -1:] + mass[..., None]], dim=-1)

    def _filled(self, counts: Int[Tensor, " B"]) -> Bool[Tensor, "B N"]:
        """Which places hold a key, after so many."""
        s, place = self.structure, self.place
        late = counts[:, None] - s.sinks
        sink, kept = place < s.sinks, place < s.sinks + s.kept
        in_ring = place - s.sinks - s.kept < late
        return torch.where(sink, place < counts[:, None], torch.where(kept, place - s.sinks < late - s.width, in_ring))
