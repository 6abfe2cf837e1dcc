"""Forward pass block by block: a program makes the sums of BM queries of one head, walking over blocks of BN keys.

q is (N·G, Tq, D), k (N, T, D), v (N, T, E), decay (N, T) float64, all contiguous; N counts batch rows and key heads, G
query heads share one of the latter, K key heads belong to one batch row. The queries stand at the last positions.
"""

import triton
import triton.language as tl

from softmax_rnn.attention.kernels.triton.device.language import (
    LN2,
    LOG2E,
    LOWEST,
    add_product,
    coefficients_of,
    columns_of,
    faded,
    product,
    put_rows,
    rows_of,
    scaled,
    sees,
    value,
)


@triton.jit
def _span(
    total, mass, largest, lowest, q, k, v, decay, mask, coefficients, i, at_query, low, first, sink, origin,
    start, stop, T, clamp, score_scale,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, BN: tl.constexpr, DEGREE: tl.constexpr,
    HAS_CLAMP: tl.constexpr, HAS_DECAY: tl.constexpr, HAS_LOW: tl.constexpr, HAS_SINKS: tl.constexpr,
    HAS_MASK: tl.constexpr, WANTS_SUM: tl.constexpr, WANTS_SIGN: tl.constexpr, MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The keys from start to stop, added to the sums."""
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    for at in range(start, stop, BN):
        j = at + tl.arange(0, BN)
        real = j < T
        x = scaled(product(q, columns_of(k, j, d, real, D), PRECISION), score_scale, DEGREE)
        if HAS_CLAMP:
            x = tl.minimum(x, clamp)
        seen = i >= 0
        if MASKED:
            key = tl.load(mask + j, mask=real, other=0) if HAS_MASK else j
            seen = sees(i, j[None, :], low, first, sink, key[None, :], HAS_LOW, HAS_SINKS, HAS_MASK)
        at_key = tl.zeros([BN], tl.float32)
        if HAS_DECAY:
            at_key = (tl.load(decay + j, mask=real, other=0.0) - origin).to(tl.float32) * LOG2E
        if DEGREE == 0:
            x = x * LOG2E
            if HAS_DECAY:
                x = x - at_key[None, :]
            if MASKED:
                x = tl.where(seen, x, float("-inf"))
            newest = tl.maximum(largest, tl.max(x, 1))
            w = tl.exp2(x - newest[:, None])
            shrink = tl.exp2(largest - newest)
            total = total * shrink[:, None]
            mass = mass * shrink
            largest = newest
        else:
            w = value(x, coefficients, DEGREE)
            w = faded(w, at_query[:, None] - at_key[None, :], seen, HAS_DECAY, MASKED)
            if WANTS_SIGN:
                lowest = tl.minimum(lowest, tl.min(w, 1))
        values = rows_of(v, j, e, real, E)
        w = w.to(values.dtype)
        if WANTS_SUM:
            # As they enter the product: the row stays an average.
            mass = mass + tl.sum(w.to(tl.float32), 1)
        total = add_product(total, w, values, PRECISION)
    return total, mass, largest, lowest


@triton.jit
def block_sums(
    q, k, v, decay, coefficients, low, first, sink, mask, y, row_sum, log_scale, negative, Tq, T, G, K, clamp,
    score_scale,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    DEGREE: tl.constexpr, HAS_ROWS: tl.constexpr, HAS_CLAMP: tl.constexpr, HAS_DECAY: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_SINKS: tl.constexpr, HAS_MASK: tl.constexpr, WANTS_SUM: tl.constexpr,
    WANTS_SIGN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Numerator, row sum, log scale, and whether a weight was below 0."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest rows first
    head = tl.program_id(1).to(tl.int64)
    n = head // G
    b = n // K
    past = T - Tq
    row = block * BM + tl.arange(0, BM)
    real = row < Tq
    i = past + row
    begin = past + block * BM
    stop = tl.minimum(begin + BM, T)
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    queries = rows_of(q + head * Tq * D, row, d, real, D)
    k += n * T * D
    v += n * T * E
    origin = 0.0
    at_query = tl.zeros([BM], tl.float32)
    if HAS_DECAY:
        decay += n * T
        origin = tl.load(decay + begin)
        at_query = (tl.load(decay + i, mask=real, other=0.0) - origin).to(tl.float32) * LOG2E
    if HAS_ROWS:
        coefficients += head * Tq * (DEGREE + 1)
    coef = coefficients_of(coefficients, row[:, None], Tq - 1, DEGREE, HAS_ROWS)
    if HAS_MASK:
        mask += b * T
    low_i, first_i, sink_i = i, i, i
    start = 0
    if HAS_LOW:
        low += b * T
        low_i = tl.load(low + i, mask=real, other=0)
        start = tl.load(low + begin) // BN * BN
    total = tl.zeros([BM, BE], tl.float32)
    mass = tl.zeros([BM], tl.float32)
    largest = tl.zeros([BM], tl.float32) + LOWEST
    lowest = tl.zeros([BM], tl.float32)
    if HAS_SINKS:
        first_i = tl.load(first + b * T + i, mask=real, other=0)
        sink_i = tl.load(sink + b * T + i, mask=real, other=0)
        sink_start = tl.load(first + b * T + begin) // BN * BN
        sink_stop = tl.minimum(tl.load(sink + b * T + stop - 1), start)
        total, mass, largest, lowest = _span(
            total, mass, largest, lowest, queries, k, v, decay, mask, coef, i[:, None], at_query,
            low_i[:, None], first_i[:, None], sink_i[:, None], origin, sink_start, sink_stop, T, clamp, score_scale,
            D, E, BD, BE, BN, DEGREE, HAS_CLAMP, HAS_DECAY, HAS_LOW, HAS_SINKS, HAS_MASK, WANTS_SUM, WANTS_SIGN, True,
            PRECISION,
        )  # fmt: skip
    if not (HAS_LOW or HAS_MASK):
        # Keys that all queries of the block see.
        whole = (begin + 1) // BN * BN
        total, mass, largest, lowest = _span(
            total, mass, largest, lowest, queries, k, v, decay, mask, coef, i[:, None], at_query,
            low_i[:, None], first_i[:, None], sink_i[:, None], origin, start, whole, T, clamp, score_scale, D, E, BD,
            BE, BN, DEGREE,
            HAS_CLAMP, HAS_DECAY, HAS_LOW, HAS_SINKS, HAS_MASK, WANTS_SUM, WANTS_SIGN, False, PRECISION,
        )  # fmt: skip
        start = whole
    total, mass, largest, lowest = _span(
        total, mass, largest, lowest, queries, k, v, decay, mask, coef, i[:, None], at_query,
        low_i[:, None], first_i[:, None], sink_i[:, None], origin, start, stop, T, clamp, score_scale, D, E, BD, BE,
        BN, DEGREE,
        HAS_CLAMP, HAS_DECAY, HAS_LOW, HAS_SINKS, HAS_MASK, WANTS_SUM, WANTS_SIGN, True, PRECISION,
    )  # fmt: skip
    put_rows(y + head * Tq * E, row, e, real, total, E)
    at = head * Tq + row
    if WANTS_SUM:
        tl.store(row_sum + at, mass, mask=real)
    if DEGREE == 0:
        scale = tl.where(largest > LOWEST, (largest + at_query) * LN2, 0.0)
        tl.store(log_scale + at, scale, mask=real)
    if WANTS_SIGN:
        tl.store(negative + at, (lowest < 0).to(tl.int8), mask=real)
