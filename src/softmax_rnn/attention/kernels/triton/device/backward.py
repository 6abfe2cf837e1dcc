"""Backward pass block by block: weights are made again, by keys for dk and dv, by queries for dq.

With dy and dr the gradients of numerator and row sum: dw = dy·vᵀ + dr, dv = wᵀ·dy, dx = dw ⊙ f'(x), dq = dx·k,
dk = dxᵀ·q. The sums over keys are made with keys as rows, so no operand of a product changes its layout.
"""

import triton
import triton.language as tl

from softmax_rnn.attention.kernels.triton.device.language import (
    LOG2E,
    add_product,
    coefficients_of,
    columns_of,
    product,
    put_rows,
    rows_of,
    scaled,
    sees,
    slopes,
    weights,
)


@triton.jit
def _key_span(
    dk, dv, ones, keys, values, j, at_key, key, q, dy, dr, log_scale, decay, low, first, sink, coefficients, origin,
    past, start, stop, Tq, clamp, score_scale,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr, DEGREE: tl.constexpr,
    HAS_ROWS: tl.constexpr, HAS_CLAMP: tl.constexpr, HAS_DECAY: tl.constexpr, HAS_LOW: tl.constexpr,
    HAS_SINKS: tl.constexpr, HAS_MASK: tl.constexpr, HAS_DR: tl.constexpr, MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The queries from start to stop, added to the gradients of a block of keys."""
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    for at in range(start, stop, BM):
        row = at + tl.arange(0, BM)
        real = row < Tq
        i = past + row
        queries = columns_of(q, row, d, real, D)
        x = scaled(product(keys, queries, PRECISION), score_scale, DEGREE)
        wanted = rows_of(dy, row, e, real, E)
        dw = product(values, tl.trans(wanted), PRECISION)
        dr_i = tl.zeros([BM], tl.float32)
        if HAS_DR:
            dr_i = tl.load(dr + row, mask=real, other=0.0)
            dw += dr_i[None, :]
        if HAS_CLAMP:
            dw = tl.where(x <= clamp, dw, 0.0)
            x = tl.minimum(x, clamp)
        log_i = tl.zeros([BM], tl.float32)
        if HAS_DECAY:
            # Rows beyond the last weigh nothing, whatever the origin is.
            log_i += (tl.load(decay + i, mask=real, other=float("-inf")) - origin).to(tl.float32)
        if DEGREE == 0:
            log_i -= tl.load(log_scale + row, mask=real, other=0.0)
        log = (log_i * LOG2E)[None, :]
        if HAS_DECAY:
            log = log - at_key[:, None]
        seen = j[:, None] >= 0
        if MASKED:
            low_i = tl.load(low + i, mask=real, other=0) if HAS_LOW else i
            first_i = tl.load(first + i, mask=real, other=0) if HAS_SINKS else i
            sink_i = tl.load(sink + i, mask=real, other=0) if HAS_SINKS else i
            seen = sees(i[None, :], j[:, None], low_i[None, :], first_i[None, :], sink_i[None, :], key[:, None],
                        HAS_LOW, HAS_SINKS, HAS_MASK) & real[None, :]  # fmt: skip
        coef = coefficients_of(coefficients, row[None, :], Tq - 1, DEGREE, HAS_ROWS)
        w = weights(x, log, seen, coef, DEGREE, HAS_DECAY, MASKED)
        rounded = w.to(wanted.dtype)
        dv = add_product(dv, rounded, wanted, PRECISION)
        if HAS_DECAY and HAS_DR:
            ones += tl.sum(rounded.to(tl.float32) * dr_i[None, :], 1)
        s = w if DEGREE == 0 else slopes(x, log, seen, coef, DEGREE, HAS_DECAY, MASKED)
        dk = add_product(dk, (dw * s).to(queries.dtype), tl.trans(queries), PRECISION)
    return dk, dv, ones


@triton.jit
def key_gradients(
    q, k, v, decay, coefficients, low, first, sink, last, mask, dy, dr, log_scale, dk, dv, d_ones, Tq, T, G, K, clamp,
    score_scale,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    DEGREE: tl.constexpr, HAS_ROWS: tl.constexpr, HAS_CLAMP: tl.constexpr, HAS_DECAY: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_SINKS: tl.constexpr, HAS_MASK: tl.constexpr, HAS_DR: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """dk, dv, and with a decay Σ_i w_ij dr_i, of a block of BN keys."""
    block = tl.program_id(0)
    n = tl.program_id(1).to(tl.int64)
    b = n // K
    past = T - Tq
    j = block * BN + tl.arange(0, BN)
    there = j < T
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    keys = rows_of(k + n * T * D, j, d, there, D)
    values = rows_of(v + n * T * E, j, e, there, E)
    origin = 0.0
    at_key = tl.zeros([BN], tl.float32)
    if HAS_DECAY:
        decay += n * T
        origin = tl.load(decay + block * BN)
        at_key = (tl.load(decay + j, mask=there, other=0.0) - origin).to(tl.float32) * LOG2E
    key = tl.load(mask + b * T + j, mask=there, other=0) if HAS_MASK else j
    start = tl.maximum(block * BN - past, 0) // BM * BM
    stop = Tq
    if HAS_LOW:
        low += b * T
        stop = tl.max(tl.load(last + b * T + j, mask=there, other=0), 0) + 1 - past
    if HAS_SINKS:
        first += b * T
        sink += b * T
    # From here on every query sees every key of the block.
    clear = tl.minimum(tl.cdiv(tl.maximum((block + 1) * BN - 1 - past, 0), BM) * BM, stop)
    if HAS_LOW or HAS_MASK:
        clear = stop
    dk_block = tl.zeros([BN, BD], tl.float32)
    dv_block = tl.zeros([BN, BE], tl.float32)
    ones = tl.zeros([BN], tl.float32)
    for g in range(G):
        head = n * G + g
        q_g, dy_g = q + head * Tq * D, dy + head * Tq * E
        dr_g = dr + head * Tq if HAS_DR else dr
        scale_g = log_scale + head * Tq if DEGREE == 0 else log_scale
        coef_g = coefficients + head * Tq * (DEGREE + 1) if HAS_ROWS else coefficients
        dk_block, dv_block, ones = _key_span(
            dk_block, dv_block, ones, keys, values, j, at_key, key, q_g, dy_g, dr_g, scale_g, decay, low, first, sink,
            coef_g, origin, past, start, clear, Tq, clamp, score_scale, D, E, BD, BE, BM, DEGREE, HAS_ROWS, HAS_CLAMP,
            HAS_DECAY,
            HAS_LOW, HAS_SINKS, HAS_MASK, HAS_DR, True, PRECISION,
        )  # fmt: skip
        if not (HAS_LOW or HAS_MASK):
            # Rows beyond the last have dy = dr = 0 and add nothing, so nothing needs to be hidden.
            dk_block, dv_block, ones = _key_span(
                dk_block, dv_block, ones, keys, values, j, at_key, key, q_g, dy_g, dr_g, scale_g, decay, low, first,
                sink, coef_g, origin, past, clear, stop, Tq, clamp, score_scale, D, E, BD, BE, BM, DEGREE, HAS_ROWS,
                HAS_CLAMP,
                HAS_DECAY, HAS_LOW, HAS_SINKS, HAS_MASK, HAS_DR, False, PRECISION,
            )  # fmt: skip
    put_rows(dk + n * T * D, j, d, there, scaled(dk_block, score_scale, DEGREE), D)
    put_rows(dv + n * T * E, j, e, there, dv_block, E)
    if HAS_DECAY and HAS_DR:
        tl.store(d_ones + n * T + j, ones, mask=there)


@triton.jit
def _query_span(
    dq, queries, wanted, dr, log_i, i, low, first, sink, k, v, decay, mask, coefficients, origin, start, stop, T, clamp,
    score_scale,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, BN: tl.constexpr, DEGREE: tl.constexpr,
    HAS_CLAMP: tl.constexpr, HAS_DECAY: tl.constexpr, HAS_LOW: tl.constexpr, HAS_SINKS: tl.constexpr,
    HAS_MASK: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The keys from start to stop, added to the gradients of a block of queries."""
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    for at in range(start, stop, BN):
        j = at + tl.arange(0, BN)
        real = j < T
        keys = rows_of(k, j, d, real, D)
        x = scaled(product(queries, tl.trans(keys), PRECISION), score_scale, DEGREE)
        dw = product(wanted, columns_of(v, j, e, real, E), PRECISION) + dr[:, None]
        if HAS_CLAMP:
            dw = tl.where(x <= clamp, dw, 0.0)
            x = tl.minimum(x, clamp)
        log = (log_i * LOG2E)[:, None]
        if HAS_DECAY:
            log = log - ((tl.load(decay + j, mask=real, other=0.0) - origin).to(tl.float32) * LOG2E)[None, :]
        seen = i >= 0
        if MASKED:
            key = tl.load(mask + j, mask=real, other=0) if HAS_MASK else j
            seen = sees(i, j[None, :], low, first, sink, key[None, :], HAS_LOW, HAS_SINKS, HAS_MASK)
        s = slopes(x, log, seen, coefficients, DEGREE, HAS_DECAY, MASKED)
        dq = add_product(dq, (dw * s).to(keys.dtype), keys, PRECISION)
    return dq


@triton.jit
def query_gradients(
    q, k, v, decay, coefficients, low, first, sink, mask, dy, dr, log_scale, dq, Tq, T, G, K, clamp,
    score_scale,
    D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    DEGREE: tl.constexpr, HAS_ROWS: tl.constexpr, HAS_CLAMP: tl.constexpr, HAS_DECAY: tl.constexpr,
    HAS_LOW: tl.constexpr, HAS_SINKS: tl.constexpr, HAS_MASK: tl.constexpr, HAS_DR: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """dq of a block of BM queries."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
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
    wanted = rows_of(dy + head * Tq * E, row, e, real, E)
    k += n * T * D
    v += n * T * E
    dr_i = tl.load(dr + head * Tq + row, mask=real, other=0.0) if HAS_DR else tl.zeros([BM], tl.float32)
    log_i = tl.zeros([BM], tl.float32)
    origin = 0.0
    if HAS_DECAY:
        decay += n * T
        origin = tl.load(decay + begin)
        log_i += (tl.load(decay + i, mask=real, other=0.0) - origin).to(tl.float32)
    if DEGREE == 0:
        log_i -= tl.load(log_scale + head * Tq + row, mask=real, other=0.0)
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
    total = tl.zeros([BM, BD], tl.float32)
    if HAS_SINKS:
        first_i = tl.load(first + b * T + i, mask=real, other=0)
        sink_i = tl.load(sink + b * T + i, mask=real, other=0)
        sink_start = tl.load(first + b * T + begin) // BN * BN
        sink_stop = tl.minimum(tl.load(sink + b * T + stop - 1), start)
        total = _query_span(
            total, queries, wanted, dr_i, log_i, i[:, None], low_i[:, None], first_i[:, None], sink_i[:, None], k, v,
            decay, mask, coef, origin, sink_start, sink_stop, T, clamp, score_scale, D, E, BD, BE, BN, DEGREE,
            HAS_CLAMP, HAS_DECAY,
            HAS_LOW, HAS_SINKS, HAS_MASK, True, PRECISION,
        )  # fmt: skip
    if not (HAS_LOW or HAS_MASK):
        whole = (begin + 1) // BN * BN
        total = _query_span(
            total, queries, wanted, dr_i, log_i, i[:, None], low_i[:, None], first_i[:, None], sink_i[:, None], k, v,
            decay, mask, coef, origin, start, whole, T, clamp, score_scale, D, E, BD, BE, BN, DEGREE, HAS_CLAMP,
            HAS_DECAY, HAS_LOW,
            HAS_SINKS, HAS_MASK, False, PRECISION,
        )  # fmt: skip
        start = whole
    total = _query_span(
        total, queries, wanted, dr_i, log_i, i[:, None], low_i[:, None], first_i[:, None], sink_i[:, None], k, v,
        decay, mask, coef, origin, start, stop, T, clamp, score_scale, D, E, BD, BE, BN, DEGREE, HAS_CLAMP, HAS_DECAY,
        HAS_LOW,
        HAS_SINKS, HAS_MASK, True, PRECISION,
    )  # fmt: skip
    put_rows(dq + head * Tq * D, row, d, real, scaled(total, score_scale, DEGREE), D)
