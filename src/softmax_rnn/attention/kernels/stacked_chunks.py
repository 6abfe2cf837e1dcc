"""Many chunks in one call: where features are few, the states between all chunks fit the memory.

    S_c = Σ_{j in chunk c} φ(k_j) U_jᵀ      y_i = φ(q_i) (S + Σ_{b<c} S_b) + Σ_{j≤i in c} f(q_i·k_j) U_j

A loop over chunks of few features spends its time in calls.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.forms import chunked as form
from softmax_rnn.attention.kernels.chunks import Inputs

STATE_NUMBERS = 2**21
"""Numbers of states that are in memory at once."""


def can_stack(inputs: Inputs) -> bool:
    """Whether states are only added: no decay, no segments, no coefficients of single rows; and they are small."""
    layout = inputs.layout
    no_decay = inputs.decay is None and inputs.fold is None and not layout.strict
    only_added = no_decay and layout.visibility.first_key is None and inputs.rows is None
    return only_added and layout.features.count <= form.FEW_FEATURES and layout.time > layout.chunk


def stacked(inputs: Inputs, state: Float[Tensor, "M F U"]) -> tuple[Float[Tensor, "M G T U"], Float[Tensor, "M F U"]]:
    """The outputs and the state after them, as many chunks at once as fit the memory."""
    time, chunk = inputs.layout.time, inputs.layout.chunk
    length = max(STATE_NUMBERS // state.numel(), 1) * chunk
    outputs = []
    for start in range(0, time, length):
        stop = min(start + length, time)
        q, k, u = inputs.q[:, :, start:stop], inputs.k[:, start:stop], inputs.u[:, start:stop]
        y, state = _stretch(inputs, q, k, u, state)
        outputs.append(y)
    return torch.cat(outputs, dim=2) if len(outputs) > 1 else outputs[0], state


def _stretch(inputs: Inputs, q: Tensor, k: Tensor, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    features, chunk = inputs.layout.features, min(inputs.layout.chunk, k.shape[1])
    heads, groups, time = q.shape[:3]
    count = -(-time // chunk)
    more = count * chunk - time
    if more:  # keys and values of 0 add nothing
        q, k, u = (F.pad(x, (0, 0, 0, more)) for x in (q, k, u))
    k, u = (x.unflatten(1, (count, chunk)).flatten(0, 1) for x in (k, u))
    q = q.unflatten(2, (count, chunk)).transpose(1, 2).reshape(heads * count, groups * chunk, -1)
    states = _summed(features, k, u).unflatten(0, (heads, count))
    before = torch.empty_like(states)
    for n in range(count):  # faster than a running sum along an axis in the middle
        before[:, n], state = state, state + states[:, n]
    weights = features.score.series().value(torch.bmm(q, k.mT))
    weights.view(heads * count, groups, chunk, chunk).tril_()
    y = _read(features, q, before.flatten(0, 1)).baddbmm_(weights, u)
    y = y.unflatten(1, (groups, chunk)).unflatten(0, (heads, count)).transpose(1, 2).flatten(2, 3)
    return y[:, :, :time].contiguous(), state


def _summed(features: SymmetricFeatures, k: Float[Tensor, "N C D"], u: Float[Tensor, "N C U"]) -> Tensor:
    """Σ φ(k) Uᵀ; of the orders 0 and 1 the features are 1 and the keys themselves."""
    if features.score.degree > 1:
        return torch.bmm(features.key(k.mT), u)
    orders = {0: lambda: u.sum(1, keepdim=True), 1: lambda: torch.bmm(k.mT, u)}
    return torch.cat([orders[n]() for n in features.score.orders], dim=1)


def _read(features: SymmetricFeatures, q: Float[Tensor, "N R D"], states: Float[Tensor, "N F U"]) -> Tensor:
    """φ(q) S."""
    if features.score.degree != 1:
        return torch.bmm(features.query(q.mT, None).mT, states)
    constant, first = features.score.coefficients
    y = torch.bmm(q, states[:, -q.shape[-1] :])
    if first != 1:
        y.mul_(first)
    return y.add_(states[:, :1], alpha=constant) if constant else y
