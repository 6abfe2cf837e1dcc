"""Before the contraction, position by position: features, gated values, running sums."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.parts.base import Along
from softmax_rnn.attention.parts.feature_maps import Side
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.visibility import Visibility


def features(
    spec: AttentionSpec, q: Tensor, k: Tensor, tensors: Mapping[str, Tensor], positions: Float[Tensor, "B T"]
) -> tuple[Tensor, Tensor]:
    """φ(q) · scale and φ(k), or the keys that the decay puts in its place."""
    given = k
    if spec.feature_map is not None:
        q = spec.feature_map.features(q, Side(True, tensors, positions))
        k = spec.feature_map.features(k, Side(False, tensors, positions))
    if spec.forget_gate is not None:
        k = spec.forget_gate.keys(k, given, tensors)
    scale = spec.score.scale if spec.score.scale is not None else q.shape[-1] ** -0.5
    return (q if scale == 1 else q * scale), k


def values(
    spec: AttentionSpec,
    v: Float[Tensor, "B K T E"],
    tensors: Mapping[str, Tensor],
    lengths: Float[Tensor, "B T"],
    heads: int,
) -> Float[Tensor, "B K2 T E"]:
    """The values as they enter the sum, times what the parts say. Heads grow to H where they differ."""
    factor = None
    for part in spec.parts:
        more = part.value_factor(tensors, lengths)
        if more is not None:
            factor = more if factor is None else factor * more
    if factor is None:
        return v
    return v.repeat_interleave(heads // v.shape[1], dim=1) * factor[..., None]


def running(along: Along, before: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The values that parts carry along time, by the part's slot."""
    values = {part.slot: part.running(along, before.get(part.slot)) for part in along.spec.running_parts}
    return {slot: x for slot, x in values.items() if x is not None}


def running_sum(
    x: Float[Tensor, "B K T F"], seen: Visibility, before: Float[Tensor, "B K F"] | None
) -> Float[Tensor, "B K T F"]:
    """Σ_{r seen by i} x_r, continued from the sum of the past; summed in float64, so that segments can be cut out."""
    dtype, x = x.dtype, x.double()
    if seen.key_mask is not None:
        x = x.masked_fill(~seen.key_mask[:, None, :, None], 0)
    total = x.cumsum(2)
    if seen.first_key is not None:
        earlier = torch.nn.functional.pad(total, (0, 0, 1, 0))
        place = seen.first_key[:, None, :, None].expand_as(total)
        total = total - earlier.gather(2, place)
    return (total if before is None else total + before[:, :, None]).to(dtype)


def running_log_sum(
    x: Float[Tensor, "B H T"], seen: Visibility, before: Float[Tensor, "B H"] | None
) -> Float[Tensor, "B H T"]:
    """log Σ_{r seen by i} exp(x_r), continued from the value of the past."""
    if seen.key_mask is not None:
        x = x.masked_fill(~seen.key_mask[:, None], torch.finfo(x.dtype).min)
    if seen.first_key is not None:
        return _segmented_logcumsumexp(x, seen.first_key)
    if before is None:
        return torch.logcumsumexp(x, dim=-1)
    return torch.logcumsumexp(torch.cat([before[..., None], x], dim=-1), dim=-1)[..., 1:]


def _segmented_logcumsumexp(x: Float[Tensor, "B H T"], first_key: Tensor) -> Float[Tensor, "B H T"]:
    """The running log-sum-exp that restarts at each segment, by doubling: after step s it spans 2^s positions."""
    time = x.shape[-1]
    position = torch.arange(time, device=x.device)
    if not isinstance(time, int):  # of a traced graph: doubling would be a graph per power of two
        inside = (position <= position[:, None]) & (position >= first_key[..., None])
        return x[:, :, None].masked_fill(~inside[:, None], torch.finfo(x.dtype).min).logsumexp(-1)
    reach = 1
    while reach < time:
        earlier = torch.nn.functional.pad(x[..., :-reach], (reach, 0))
        inside = (position - reach >= first_key)[:, None]
        x = torch.where(inside, torch.logaddexp(x, torch.where(inside, earlier, 0)), x)
        reach *= 2
    return x
