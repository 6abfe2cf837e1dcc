"""One position after a state of fixed size: the state is read once and written once."""

import triton
import triton.language as tl

from softmax_rnn.attention.kernels.triton.device.language import value


@triton.jit
def state_step(
    q, k, u, keep, one, other, order, times, coefficients, S, after, y, F, G,
    D: tl.constexpr, U: tl.constexpr, BU: tl.constexpr, BF: tl.constexpr, COUNT: tl.constexpr,
    HAS_KEEP: tl.constexpr, HAS_ROWS: tl.constexpr,
):  # fmt: skip
    """BF features of one head: after = keep S + φ(k) uᵀ, and y = keep φ(q) S, to be summed over the tiles of features.

    A monomial is the product of the columns ``one`` and ``other``; column D stands for 1.
    """
    n = tl.program_id(1).to(tl.int64)
    tile = tl.program_id(0)
    f = tile * BF + tl.arange(0, BF)
    c = tl.arange(0, BU)
    real = f < F
    inside = real[:, None] & (c < U)[None, :]
    a = tl.load(one + f, mask=real, other=D)
    b = tl.load(other + f, mask=real, other=D)
    place = n * F * U + f[:, None] * U + c[None, :]
    state = tl.load(S + place, mask=inside, other=0.0)
    if HAS_KEEP:
        state = state * tl.load(keep + n)
    key = tl.load(k + n * D + a, mask=a < D, other=1.0) * tl.load(k + n * D + b, mask=b < D, other=1.0)
    new = tl.load(u + n * U + c, mask=c < U, other=0.0)
    tl.store(after + place, state + key[:, None] * new[None, :], mask=inside)
    weight = tl.load(times + f, mask=real, other=0.0)
    degree = tl.load(order + f, mask=real, other=0)
    for g in range(G):
        head = n * G + g
        coef = coefficients
        if HAS_ROWS:
            coef = coefficients + head * COUNT
        query = tl.load(q + head * D + a, mask=a < D, other=1.0) * tl.load(q + head * D + b, mask=b < D, other=1.0)
        query = query * weight * tl.load(coef + degree)
        out = (n * tl.num_programs(0) + tile) * G + g
        tl.store(y + out * U + c, tl.sum(state * query[:, None], 0), mask=c < U)


@triton.jit
def step_outputs(
    q, k, u, parts, coefficients, y, tiles, G,
    D: tl.constexpr, BD: tl.constexpr, U: tl.constexpr, BU: tl.constexpr, DEGREE: tl.constexpr, HAS_ROWS: tl.constexpr,
):  # fmt: skip
    """The tiles of `state_step` summed up, and the newest key by its weight: exact where features would cancel."""
    head = tl.program_id(0).to(tl.int64)
    n = head // G
    g = head % G
    d = tl.arange(0, BD)
    c = tl.arange(0, BU)
    inside = d < D
    x = tl.load(q + head * D + d, mask=inside, other=0.0) * tl.load(k + n * D + d, mask=inside, other=0.0)
    coef = coefficients
    if HAS_ROWS:
        coef = coefficients + head * (DEGREE + 1)
    total = value(tl.sum(x, 0) + tl.zeros([BU], tl.float32), coef, DEGREE)
    total = total * tl.load(u + n * U + c, mask=c < U, other=0.0)
    for tile in range(tiles):
        total += tl.load(parts + ((n * tiles + tile) * G + g) * U + c, mask=c < U, other=0.0)
    tl.store(y + head * U + c, total, mask=c < U)
