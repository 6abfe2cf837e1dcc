"""Kept keys with every weight in memory: only which keys are exact is found query by query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.parts import KeptKeys

if TYPE_CHECKING:
    from softmax_rnn.attention.structures.kept_keys import KeptState

TOGETHER = 256
"""Keys that are folded at once."""


@dataclass(frozen=True)
class _Choice:
    exact: Bool[Tensor, "B K T T"]
    """Window, sinks and kept keys of each query."""
    gone: Bool[Tensor, "B K T"]
    """What is folded, or dropped, after the last."""
    mass: Float[Tensor, "B K T"]


def all_weights(job: Contraction, structure: KeptKeys, state: KeptState | None) -> tuple[Sums, KeptState | None]:
    """The sums of a whole sequence; with an empty state also the state after it."""
    seen = replace(job.visibility, near=None)
    time = job.k.shape[2]
    allowed = seen.allowed(slice(0, time), slice(0, time), job.q.device).expand(job.k.shape[0], -1, -1)
    x = torch.einsum("bkgid,bkjd->bkgij", job.q, job.k)
    choice = _choose(x.detach(), allowed, structure, seen.key_mask)
    exact, allowed = choice.exact[:, :, None], allowed[:, None, None]
    largest = x.detach().masked_fill(~exact, -torch.inf).amax(-1, keepdim=True)
    largest = largest.masked_fill(largest == -torch.inf, 0)
    folded, m = allowed & ~exact, torch.zeros_like(largest)
    if structure.centred:
        m = _centre(job, folded)
        x = x.to(m.dtype)
    if job.score.finite_features is not None:
        largest = torch.maximum(largest.to(m.dtype), m)
    weights = torch.where(exact, torch.exp(torch.where(exact, x - largest, 0)), 0)
    if job.score.finite_features is not None:
        far = job.score.series().differentiable(torch.where(folded, x - m, 0)) * torch.exp(m - largest)
        weights = torch.where(folded, far, weights)
    numerator = torch.einsum("bkgij,bkje->bkgie", weights, job.v.to(weights.dtype))
    sums = Sums(numerator, weights.sum(-1), largest[..., 0])
    return sums, None if state is None else _state(job, structure, choice, state)


def _centre(job: Contraction, folded: Bool[Tensor, "B K 1 T T"]) -> Float[Tensor, "B K G T 1"]:
    """q·μ, μ the mean of the folded keys of each query."""
    keys = folded[:, :, 0].double() @ job.k.double()
    mean = keys / folded[:, :, 0].sum(-1, keepdim=True).clamp(min=1)
    return torch.einsum("bkgtd,bktd->bkgt", job.q.double(), mean)[..., None]


def _choose(
    x: Float[Tensor, "B K G T T"],
    allowed: Bool[Tensor, "B T T"],
    structure: KeptKeys,
    real: Bool[Tensor, "B T"] | None,
) -> _Choice:
    number = allowed.cumsum(-1)
    near = allowed & ((number <= structure.sinks) | (number > number[..., -1:] - structure.width))
    left = allowed & ~near
    gone = torch.zeros(*x.shape[:2], x.shape[-1], dtype=torch.bool, device=x.device)
    mass, rows = torch.zeros_like(gone, dtype=x.dtype), []
    for i in range(x.shape[3]):
        kept = left[:, None, i] & ~gone
        least = mass.masked_fill(~kept, torch.inf).argmin(-1, keepdim=True)
        folds = torch.zeros_like(gone).scatter(-1, least, kept.sum(-1, keepdim=True) > structure.kept)
        gone = gone | folds
        rows.append(near[:, None, i] | (kept & ~folds))
        weights = x[:, :, :, i].masked_fill(~rows[-1][:, :, None], -torch.inf).softmax(-1).nan_to_num(0).sum(2)
        mass = mass + (weights if real is None else weights * real[:, i, None, None])
    return _Choice(torch.stack(rows, dim=2), gone, mass)


def _state(job: Contraction, structure: KeptKeys, choice: _Choice, state: KeptState) -> KeptState:
    place = _places(job, structure, choice)[..., None]
    entries = torch.cat([job.k, job.v, choice.mass[..., None].to(job.v.dtype)], dim=-1)
    empty = entries.new_zeros(*entries.shape[:2], structure.near + 1, entries.shape[-1])
    places = empty.scatter(2, place.expand_as(entries), entries)[:, :, :-1]
    keys, values, mass = places.split([job.k.shape[-1], job.v.shape[-1], 1], dim=-1)
    matrix = state.matrix
    polynomial = job.score.finite_features
    if polynomial is not None and matrix is not None:
        features = SymmetricFeatures(polynomial, job.k.shape[-1])
        u = torch.cat([job.v, torch.ones_like(job.v[..., :1])], dim=-1) * choice.gone[..., None]
        for k, some in zip(job.k.split(TOGETHER, dim=2), u.split(TOGETHER, dim=2), strict=True):
            wide = k.to(matrix.dtype).flatten(0, 1).mT
            matrix = matrix + features.key(wide).unflatten(0, k.shape[:2]) @ some.to(matrix.dtype)
    key_sum = state.key_sum
    if key_sum is not None:
        key_sum = key_sum + torch.einsum("bkj,bkjd->bkd", choice.gone.double(), job.k.double())
    return replace(state, keys=keys, values=values, mass=mass[..., 0], matrix=matrix, key_sum=key_sum)


def _places(job: Contraction, structure: KeptKeys, choice: _Choice) -> Int[Tensor, "B K T"]:
    """The place of each key in a state; one past the last for those that are not in it."""
    s, mask = structure, job.visibility.key_mask
    real = torch.ones_like(choice.gone[:, 0]) if mask is None else mask
    number = (real.cumsum(-1) - 1)[:, None]
    late = number - s.sinks
    in_ring = number > number[..., -1:] - s.width
    kept = real[:, None] & (late >= 0) & ~in_ring & ~choice.gone
    place = torch.where(in_ring, s.sinks + s.kept + late % s.width, s.near)
    place = torch.where(kept, s.sinks + kept.cumsum(-1) - 1, place)
    place = torch.where(late < 0, number, place)
    return torch.where(real[:, None], place, s.near)
