"""Many chunks in one call: where features are few, the states between them fit the cache.

    S_c = Σ_{j in chunk c} φ(k_j) U_jᵀ      y_i = φ(q_i) (S + Σ_{b<c} S_b) + Σ_{j≤i in c} f(q_i·k_j) U_j

A loop over chunks of few features spends its time in calls. The positions of a head lie side by side in memory, so its
chunks need no copy to become a batch of products.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.features import SymmetricFeatures
from softmax_rnn.attention.forms import chunked as form
from softmax_rnn.attention.kernels.chunks import Inputs

NUMBERS_AT_ONCE = 2**18
"""States, or weights inside chunks, that are in memory at once: they should stay in the cache."""


def can_stack(inputs: Inputs) -> bool:
    """Whether states are only added: no decay, no segments, no coefficients of single rows; and they are small."""
    layout = inputs.layout
    no_decay = inputs.decay is None and inputs.fold is None and not layout.strict
    only_added = no_decay and layout.visibility.first_key is None and inputs.rows is None
    return only_added and layout.features.count <= form.FEW_FEATURES and layout.time > layout.chunk


def stacked(inputs: Inputs, state: Float[Tensor, "M F U"]) -> tuple[Float[Tensor, "M G T U"], Float[Tensor, "M F U"]]:
    """The outputs and the state after them: some heads, or a stretch of one, at a time."""
    layout, (heads, groups, time) = inputs.layout, inputs.q.shape[:3]
    chunks = max(NUMBERS_AT_ONCE // max(state[0].numel(), groups * layout.chunk**2), 1)
    some, length = max(chunks * layout.chunk // time, 1), chunks * layout.chunk
    y, end = inputs.q.new_empty(heads, groups, time, state.shape[-1]), torch.empty_like(state)
    for first in range(0, heads, some):
        here = slice(first, first + some)
        running = state[here]
        for start in range(0, time, length):
            place = slice(start, min(start + length, time))
            q, k, u = inputs.q[here, :, place], inputs.k[here, place], inputs.u[here, place]
            running = _stretch(layout.features, layout.chunk, q, k, u, running, y[here, :, place])
        end[here] = running
    return y, end


def _stretch(
    features: SymmetricFeatures,
    chunk: int,
    q: Tensor,
    k: Tensor,
    u: Tensor,
    state: Float[Tensor, "N F U"],
    out: Float[Tensor, "N G T U"],
) -> Float[Tensor, "N F U"]:
    """Fill the outputs; the state after them."""
    heads, groups, time = q.shape[:3]
    chunk = min(chunk, time)
    count = -(-time // chunk)
    more = count * chunk - time
    if more:  # keys and values of 0 add nothing
        q, k, u = (F.pad(x, (0, 0, 0, more)) for x in (q, k, u))
    k, u = (x.unflatten(1, (count, chunk)).flatten(0, 1) for x in (k, u))
    q = q.unflatten(2, (count, chunk)).transpose(1, 2).reshape(heads * count, groups * chunk, -1)
    sums = _summed(features, k, u).unflatten(0, (heads, count))
    # Rows of odd length: at strides of a power of two a running sum uses a few lines of the cache, ten times slower.
    states = sums.new_empty(heads, count, sums.shape[2], sums.shape[3] | 1)[..., : sums.shape[3]]
    torch.cat([state[:, None], sums[:, :-1]], 1, out=states).cumsum_(1)
    weights = torch.bmm(q, k.mT)
    if not features.are_the_input:
        weights = features.score.series().value(weights)
    weights.view(heads * count, groups, chunk, chunk).tril_()
    direct = out.view(heads * count, chunk, -1) if groups == 1 and not more and out.is_contiguous() else None
    y = _read(features, q, states.flatten(0, 1), direct).baddbmm_(weights, u)
    if direct is None:
        y = y.unflatten(1, (groups, chunk)).unflatten(0, (heads, count)).transpose(1, 2).flatten(2, 3)
        out.copy_(y[:, :, :time])
    return states[:, -1] + sums[:, -1]


def _summed(features: SymmetricFeatures, k: Float[Tensor, "N C D"], u: Float[Tensor, "N C U"]) -> Tensor:
    """Σ φ(k) Uᵀ; of the orders 0 and 1 the features are 1 and the keys themselves."""
    if features.score.degree > 1:
        return torch.bmm(features.key(k.mT), u)
    orders = {0: lambda: u.sum(1, keepdim=True), 1: lambda: torch.bmm(k.mT, u)}
    parts = [orders[n]() for n in features.score.orders]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _read(
    features: SymmetricFeatures, q: Float[Tensor, "N R D"], states: Float[Tensor, "N F U"], out: Tensor | None
) -> Tensor:
    """φ(q) S."""
    if features.score.degree != 1:
        return torch.bmm(features.query(q.mT, None).mT, states, out=out)
    constant, first = features.score.coefficients
    y = torch.bmm(q, states[:, -q.shape[-1] :], out=out)
    if first != 1:
        y.mul_(first)
    return y.add_(states[:, :1], alpha=constant) if constant else y
