"""The decay between two positions: decay(i, j) = exp(c_i − c_j), c the running sum of the log decays.

c is float64, so that the difference of two large numbers keeps its digits; blocks and chunks take both sides
relative to a separate origin before they go to the dtype of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

SMALLEST_LOG_DECAY = -1e4
"""A log decay below this is exp(…) = 0 in every dtype, and −inf would make −inf + inf of the running sum."""


@dataclass(frozen=True)
class RunningDecay:
    """c, per head (B, K, T), or with batch and heads as one axis (N, T)."""

    c: Float[Tensor, "*heads T"]

    @classmethod
    def of(cls, log_decay: Float[Tensor, "B H T"], key_mask: Bool[Tensor, "B T"] | None) -> RunningDecay:
        """c_i = Σ_{r≤i} log decay_r; padding does not decay."""
        steps = log_decay.double().clamp(min=SMALLEST_LOG_DECAY)
        if key_mask is not None:
            steps = steps.masked_fill(~key_mask[:, None], 0.0)
        return cls(steps.cumsum(-1))

    @property
    def memory(self) -> Float[Tensor, "B K T"]:
        """What a growing state keeps."""
        return self.c

    def after(self, past: Float[Tensor, "B K T"]) -> RunningDecay:
        """The same after the positions of a past."""
        return RunningDecay(torch.cat([past, self.c + past[..., -1:]], -1))

    def until(self, stop: int) -> RunningDecay:
        """The first positions."""
        return RunningDecay(self.c[..., :stop])

    def between(self, past: int, dtype: torch.dtype) -> Float[Tensor, "B K 1 Tq T"]:
        """log decay(i, j) for all queries and keys."""
        return (self.c[:, :, past:, None] - self.c[:, :, None, :])[:, :, None].to(dtype)

    def keep(self, t: int, features: object) -> Float[Tensor, "B K 1 1"]:
        """What step t leaves of the past, whatever the features are."""
        step = self.c[:, :, t] - self.c[:, :, t - 1] if t else self.c[:, :, 0]
        return torch.exp(step)[..., None, None]

    def from_origin(self, heads: slice, origin: int, place: slice) -> Float[Tensor, "N C"]:
        """c at some positions, relative to the one at the origin."""
        return self.c[heads, place] - self.c[heads, origin, None]

    def gradient(self, at_query: Float[Tensor, "N Tq"], at_key: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
        """dc from Σ_j dw_ij w_ij of each query, which is dy_i·y_i, and Σ_i dw_ij w_ij of each key, du_j·u_j."""
        grad = -at_key.double()
        grad[:, grad.shape[1] - at_query.shape[1] :] += at_query
        return grad.to(self.c.dtype)
