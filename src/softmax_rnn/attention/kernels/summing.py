"""The state after a stretch of keys without outputs: S = Σ_j e^(c_end − c_j) φ(k_j) U_jᵀ, one product."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.channel_decay import ChannelDecay
from softmax_rnn.attention.contraction import Contraction
from softmax_rnn.attention.decay import RunningDecay
from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.forms import chunked as form
from softmax_rnn.attention.host_sync import traced
from softmax_rnn.attention.kernels.chunked import chunked, values_and_ones
from softmax_rnn.attention.kernels.level_slots import slots_after
from softmax_rnn.attention.levels import LevelSums


def summed(job: Contraction) -> Float[Tensor, "B K F U"] | LevelSums:
    """The state after all keys of a contraction that has no past; packed documents have none."""
    tensors = (job.k, job.v, None if job.decay is None else job.decay.memory)
    needs_grad = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    if job.levels is not None and not job.levels.known:
        return slots_after(job)
    if needs_grad or job.levels is not None or traced(job.k):
        return chunked(job)[1]
    assert job.score.finite_features is not None and job.visibility.first_key is None
    features = SymmetricFeatures(job.score.finite_features, job.k.shape[-1])
    k, u = job.k.flatten(0, 1), values_and_ones(job).flatten(0, 1)
    dtype = u.dtype
    if isinstance(job.decay, RunningDecay):
        c = job.decay.c.flatten(0, 1)
        u = u * torch.exp(c[:, -1:] - c).to(dtype)[..., None]
    elif isinstance(job.decay, ChannelDecay):
        c = job.decay.steps.flatten(0, 1).double().cumsum(1)
        k, u = k * torch.exp(c[:, -1:] - c), u.double()
    state = u.new_zeros(k.shape[0], features.count, u.shape[-1])
    at_once = max(64, form.CHUNK_NUMBERS // (features.count * k.shape[0]))
    for start in range(0, k.shape[1], at_once):
        place = slice(start, start + at_once)
        state.baddbmm_(features.key(k[:, place].mT), u[:, place])
    return state.unflatten(0, job.k.shape[:2]).to(dtype)
