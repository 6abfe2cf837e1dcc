"""The decay of each channel between two positions: e^(c_i − c_j), c the running sum of the channel's log decays.

Products of queries and keys need it as two factors, e^(c_i − o) and e^(o − c_j). With the origin o in the middle of
32 positions, and no step below −40, both stay within e^±640, which float64 holds. Where the decays are seen to be
moderate, chunks do with float32 (`kernels.folding`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.forms.form import CHANNEL_CHUNK

SMALLEST_LOG_DECAY = -40.0
"""A log decay below this leaves 4e-18 of a channel: nothing beside what enters at the same step."""
LARGEST_LOG = -SMALLEST_LOG_DECAY * CHANNEL_CHUNK / 2


@dataclass(frozen=True)
class ChannelDecay:
    """The log decay of each step and channel, per head (B, K, T, F), or with batch and heads as one axis (N, T, F)."""

    steps: Float[Tensor, "*heads T F"]
    reads_before_decay: bool = False
    """Whether a query reads the state before the decay of its step; its own key is then counted apart."""

    @classmethod
    def of(
        cls, log_decay: Float[Tensor, "B H T F"], key_mask: Bool[Tensor, "B T"] | None, reads_before_decay: bool
    ) -> ChannelDecay:
        """Padding does not decay."""
        steps = log_decay.clamp(min=SMALLEST_LOG_DECAY)
        if key_mask is not None:
            steps = steps.masked_fill(~key_mask[:, None, :, None], 0.0)
        return cls(steps, reads_before_decay)

    @property
    def memory(self) -> Float[Tensor, "B K T F"]:
        """What a growing state keeps."""
        return self.steps

    def after(self, past: Float[Tensor, "B K T F"]) -> ChannelDecay:
        """The same after the positions of a past."""
        return ChannelDecay(torch.cat([past, self.steps], 2), self.reads_before_decay)

    def until(self, stop: int) -> ChannelDecay:
        """The first positions."""
        return ChannelDecay(self.steps[:, :, :stop], self.reads_before_decay)

    def scores(self, q: Float[Tensor, "B K G Tq F"], k: Float[Tensor, "B K T F"]) -> Float[Tensor, "B K G Tq T"]:
        """Σ_c q_ic k_jc e^(c_ic − c_jc) for all queries and the keys up to them; anything for later keys."""
        past = k.shape[2] - q.shape[3]
        c = self.steps.double().cumsum(2)
        reads = c - self.steps if self.reads_before_decay else c
        rows = []
        for start in range(past, k.shape[2], CHANNEL_CHUNK):
            place = slice(start, min(start + CHANNEL_CHUNK, k.shape[2]))
            origin = c[:, :, (place.start + place.stop) // 2, None]
            query = q[:, :, :, place.start - past : place.stop - past] * torch.exp(
                reads[:, :, None, place] - origin[:, :, None]
            )
            key = k * torch.exp((origin - c).clamp(max=LARGEST_LOG))
            rows.append(torch.einsum("bkgid,bkjd->bkgij", query, key))
        return torch.cat(rows, 3).to(q.dtype)

    def keep(self, t: int, features: SymmetricFeatures) -> Float[Tensor, "B K M 1"]:
        """What step t leaves of each row of a state: the product of the decays of its monomial."""
        step = torch.exp(self.steps[:, :, t])
        return features.key(step.flatten(0, 1)[..., None]).unflatten(0, step.shape[:2])
