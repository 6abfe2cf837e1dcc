"""One decoding step of a state of fixed size."""

# Launches give numbers to what a kernel declares as constexpr.
# pyright: reportArgumentType=false

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.features import factor_places, multinomials
from softmax_rnn.attention.kernels.chunked import split_sums, values_and_ones
from softmax_rnn.attention.kernels.recurrent import keep_of
from softmax_rnn.attention.kernels.triton.blockwise import constants
from softmax_rnn.attention.kernels.triton.tiles import padded
from softmax_rnn.attention.parts import Polynomial

FEATURES = 32
"""Features of one program."""


@cache
def monomials(score: Polynomial, dim: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The two factors of each monomial (``dim``: 1), its degree, and how often it occurs in the power of a sum."""
    none, every = torch.full((1,), dim), torch.arange(dim)
    factors = {0: (none, none), 1: (every, torch.full((dim,), dim))}
    if score.degree == 2:
        factors[2] = factor_places(dim, 2, torch.device("cpu"))
    one, other = (torch.cat([factors[order][side] for order in score.orders]) for side in (0, 1))
    degrees = torch.cat([torch.full((len(factors[order][0]),), order) for order in score.orders])
    times = torch.cat([multinomials(dim, order) for order in score.orders])
    one, other, degrees = (x.to(device, torch.int32) for x in (one, other, degrees))
    return one, other, degrees, times.to(device, torch.float32)


def one_step(job: Contraction, state: Tensor) -> tuple[Sums, Tensor]:
    """The sums of one position after a state, and the state after it; without gradients."""
    from softmax_rnn.attention.kernels.triton.device.step import state_step, step_outputs

    score = job.score.as_polynomial
    assert score is not None
    batch, kv_heads, groups, _, dim = job.q.shape
    heads, features, width = batch * kv_heads, state.shape[2], state.shape[3]
    u = values_and_ones(job).float().contiguous()
    q, k = job.q.float().contiguous(), job.k.float().contiguous()
    kept = keep_of(job, 0, None)  # type: ignore[arg-type]
    keep = None if kept is None else kept.expand(batch, kv_heads, 1, 1).float().contiguous()
    coefficients = constants(score, q.device) if job.rows is None else job.rows.float().contiguous()
    state, after = state.float().contiguous(), torch.empty_like(state, dtype=torch.float32)
    tiles, has_rows = -(-features // FEATURES), job.rows is not None
    parts = torch.empty(heads, tiles, groups, width, device=q.device)
    y = torch.empty(batch, kv_heads, groups, 1, width, device=q.device)
    sizes = {"D": dim, "U": width, "BU": padded(width), "HAS_ROWS": has_rows}
    state_step[(tiles, heads)](
        q, k, u, keep, *monomials(score, dim, q.device), coefficients, state, after, parts, features, groups,
        BF=FEATURES, COUNT=score.degree + 1, HAS_KEEP=keep is not None, **sizes,
    )  # fmt: skip
    step_outputs[(heads * groups,)](
        q, k, u, parts, coefficients, y, tiles, groups, BD=padded(dim), DEGREE=score.degree, **sizes
    )
    return split_sums(job, y), after
