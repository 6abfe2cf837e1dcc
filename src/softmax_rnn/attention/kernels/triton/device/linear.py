"""Linear attention in one walk: a program keeps the state of a head in registers and goes from chunk to chunk.

Inputs are read once and outputs written once. The forward walk makes the sums; for the gradients one walk goes forwards
for the queries (with the state again), one backwards for keys and values (with the gradient of the state). The score is
c0 + c1 x; the row of degree 0 stands apart, HAS_0 says whether there is one.
"""

import triton
import triton.language as tl

from softmax_rnn.attention.kernels.triton.device.language import (
    LOG2E,
    add_product,
    faded,
    product,
    put_rows,
    rows_of,
    sees,
    value,
)


@triton.jit
def _positions(decay, low, mask, i, real, HAS_DECAY: tl.constexpr, HAS_LOW: tl.constexpr, HAS_MASK: tl.constexpr):
    """What decides about the positions of a chunk: their decay from the largest on, lowest keys, real keys."""
    relative = tl.where(real, 0.0, 0.0)
    if HAS_DECAY:
        # The difference of two large numbers is taken in float64.
        at = tl.load(decay + i, mask=real, other=0.0)
        relative = (at - tl.max(tl.where(real, at, float("-inf")), 0)).to(tl.float32) * LOG2E
    low_i = tl.load(low + i, mask=real, other=0) if HAS_LOW else i
    key = tl.load(mask + i, mask=real, other=0) if HAS_MASK else i
    return relative, low_i, key


@triton.jit
def _inside(w, relative, low, key, i, real, HAS_DECAY: tl.constexpr, HAS_LOW: tl.constexpr, HAS_MASK: tl.constexpr):
    """Numbers between the positions of a chunk, times decay and mask."""
    seen = sees(i[:, None], i[None, :], low[:, None], i[:, None], i[:, None], key[None, :], HAS_LOW, False, HAS_MASK)
    seen = seen & real[None, :] & real[:, None]
    return faded(w, relative[:, None] - relative[None, :], seen, HAS_DECAY, True)


@triton.jit
def _factor(pointer, i, real, HAS: tl.constexpr):
    factor = tl.where(real, 1.0, 0.0)
    if HAS:
        factor = tl.load(pointer + i, mask=real, other=0.0)
    return factor


@triton.jit
def _first_state(S, Z, n, d, e, D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr,
                 HAS_0: tl.constexpr, HAS_STATE: tl.constexpr, WANTS_SUM: tl.constexpr):  # fmt: skip
    """The state to begin with: rows of degree 1, their sums, the row of degree 0, and its sum in every entry."""
    state, sums = tl.zeros([BD, BE], tl.float32), tl.zeros([BD], tl.float32)
    state0, sum0 = tl.zeros([BE], tl.float32), tl.zeros([BE], tl.float32)
    if HAS_STATE:
        rows: tl.constexpr = D + HAS_0
        at = n * rows + HAS_0
        state = rows_of(S + at * E, d, e, d < D, E)
        if HAS_0:
            state0 = tl.load(S + n * rows * E + e, mask=e < E, other=0.0)
        if WANTS_SUM:
            sums = tl.load(Z + at + d, mask=d < D, other=0.0)
            if HAS_0:
                sum0 += tl.load(Z + n * rows)
    return state, sums, state0, sum0


@triton.jit
def _put_state(S, Z, n, d, e, state, sums, state0, sum0, D: tl.constexpr, E: tl.constexpr,
               HAS_0: tl.constexpr, WANTS_SUM: tl.constexpr):  # fmt: skip
    rows: tl.constexpr = D + HAS_0
    at = n * rows + HAS_0
    put_rows(S + at * E, d, e, d < D, state, E)
    if HAS_0:
        tl.store(S + n * rows * E + e, state0, mask=e < E)
    if WANTS_SUM:
        tl.store(Z + at + d, sums, mask=d < D)
        if HAS_0:
            tl.store(Z + n * rows + 0 * e, sum0, mask=e == 0)


@triton.jit
def linear_sums(
    q, k, v, decay, coefficients, low, mask, from_past, into_state, keep, S, Z, y, r, S_end, Z_end, T, chunks, K,
    G: tl.constexpr, D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, BC: tl.constexpr,
    HAS_0: tl.constexpr, HAS_DECAY: tl.constexpr, HAS_LOW: tl.constexpr, HAS_MASK: tl.constexpr,
    HAS_PASSING: tl.constexpr, HAS_STATE: tl.constexpr, WANTS_SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Numerators and row sums of a head, and the state behind it."""
    n = tl.program_id(0).to(tl.int64)
    b = n // K
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    k += n * T * D
    v += n * T * E
    if HAS_DECAY:
        decay += n * T
    if HAS_LOW:
        low += b * T
    if HAS_MASK:
        mask += b * T
    if HAS_PASSING:
        from_past += n * T
        into_state += n * T
    c0 = tl.load(coefficients)
    c1 = tl.load(coefficients + 1)
    state, sums, state0, sum0 = _first_state(S, Z, n, d, e, D, E, BD, BE, HAS_0, HAS_STATE, WANTS_SUM)
    for chunk in range(chunks):
        i = chunk * BC + tl.arange(0, BC)
        real = i < T
        relative, low_i, key = _positions(decay, low, mask, i, real, HAS_DECAY, HAS_LOW, HAS_MASK)
        reads = _factor(from_past, i, real, HAS_PASSING)
        enters = _factor(into_state, i, real, HAS_PASSING)
        keys = rows_of(k, i, d, real, D)
        values = rows_of(v, i, e, real, E)
        for g in tl.static_range(G):
            head = n * G + g
            queries = rows_of(q + head * T * D, i, d, real, D)
            w = value(product(queries, tl.trans(keys), PRECISION), coefficients, 1)
            w = _inside(w, relative, low_i, key, i, real, HAS_DECAY, HAS_LOW, HAS_MASK)
            past = product(queries, state.to(queries.dtype), PRECISION) * c1
            if HAS_0:
                past += c0 * state0[None, :]
            w = w.to(values.dtype)
            total = add_product(past * reads[:, None], w, values, PRECISION)
            put_rows(y + head * T * E, i, e, real, total, E)
            if WANTS_SUM:
                mass = tl.sum(queries.to(tl.float32) * sums[None, :], 1) * c1
                if HAS_0:
                    mass += c0 * tl.max(sum0, 0)
                tl.store(r + head * T + i, mass * reads + tl.sum(w.to(tl.float32), 1), mask=real)
        if HAS_PASSING:
            kept = tl.load(keep + n * chunks + chunk)
            state, sums, state0, sum0 = state * kept, sums * kept, state0 * kept, sum0 * kept
        entering = (keys.to(tl.float32) * enters[:, None]).to(keys.dtype)
        state = add_product(state, tl.trans(entering), values, PRECISION)
        sums += tl.sum(entering.to(tl.float32), 0)
        if HAS_0:
            state0 += tl.sum(values.to(tl.float32) * enters[:, None], 0)
            sum0 += tl.sum(enters, 0)
    _put_state(S_end, Z_end, n, d, e, state, sums, state0, sum0, D, E, HAS_0, WANTS_SUM)


@triton.jit
def linear_query_gradients(
    k, v, decay, coefficients, low, mask, from_past, into_state, keep, S, Z, dy, dr, dq, T, chunks, K,
    G: tl.constexpr, D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, BC: tl.constexpr,
    HAS_0: tl.constexpr, HAS_DECAY: tl.constexpr, HAS_LOW: tl.constexpr, HAS_MASK: tl.constexpr,
    HAS_PASSING: tl.constexpr, HAS_STATE: tl.constexpr, WANTS_SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq of the heads that share a state."""
    n = tl.program_id(0).to(tl.int64)
    b = n // K
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    k += n * T * D
    v += n * T * E
    if HAS_DECAY:
        decay += n * T
    if HAS_LOW:
        low += b * T
    if HAS_MASK:
        mask += b * T
    if HAS_PASSING:
        from_past += n * T
        into_state += n * T
    c1 = tl.load(coefficients + 1)
    state, sums, _, _ = _first_state(S, Z, n, d, e, D, E, BD, BE, HAS_0, HAS_STATE, WANTS_SUM)
    for chunk in range(chunks):
        i = chunk * BC + tl.arange(0, BC)
        real = i < T
        relative, low_i, key = _positions(decay, low, mask, i, real, HAS_DECAY, HAS_LOW, HAS_MASK)
        reads = _factor(from_past, i, real, HAS_PASSING)
        enters = _factor(into_state, i, real, HAS_PASSING)
        keys = rows_of(k, i, d, real, D)
        values = rows_of(v, i, e, real, E)
        for g in tl.static_range(G):
            head = n * G + g
            wanted = rows_of(dy + head * T * E, i, e, real, E)
            dw = product(wanted, tl.trans(values), PRECISION)
            past = product(wanted, tl.trans(state).to(wanted.dtype), PRECISION)
            if WANTS_SUM:
                one = tl.load(dr + head * T + i, mask=real, other=0.0)
                dw += one[:, None]
                past += one[:, None] * sums[None, :]
            dx = _inside(dw, relative, low_i, key, i, real, HAS_DECAY, HAS_LOW, HAS_MASK)
            total = add_product(past * reads[:, None], dx.to(keys.dtype), keys, PRECISION)
            put_rows(dq + head * T * D, i, d, real, total * c1, D)
        if HAS_PASSING:
            kept = tl.load(keep + n * chunks + chunk)
            state, sums = state * kept, sums * kept
        entering = (keys.to(tl.float32) * enters[:, None]).to(keys.dtype)
        state = add_product(state, tl.trans(entering), values, PRECISION)
        sums += tl.sum(entering.to(tl.float32), 0)


@triton.jit
def linear_key_gradients(
    q, k, v, decay, coefficients, low, mask, from_past, into_state, keep, S, Z, dy, dr, dk, dv, d_ones, S_end, Z_end,
    T, chunks, K,
    G: tl.constexpr, D: tl.constexpr, E: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr, BC: tl.constexpr,
    HAS_0: tl.constexpr, HAS_DECAY: tl.constexpr, HAS_LOW: tl.constexpr, HAS_MASK: tl.constexpr,
    HAS_PASSING: tl.constexpr, HAS_STATE: tl.constexpr, WANTS_SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk, dv and Σ_i w_ij dr_i of a head, from the last chunk to the first; S holds the gradient of the state."""
    n = tl.program_id(0).to(tl.int64)
    b = n // K
    d = tl.arange(0, BD)
    e = tl.arange(0, BE)
    k += n * T * D
    v += n * T * E
    if HAS_DECAY:
        decay += n * T
    if HAS_LOW:
        low += b * T
    if HAS_MASK:
        mask += b * T
    if HAS_PASSING:
        from_past += n * T
        into_state += n * T
    c0 = tl.load(coefficients)
    c1 = tl.load(coefficients + 1)
    state, sums, state0, sum0 = _first_state(S, Z, n, d, e, D, E, BD, BE, HAS_0, HAS_STATE, WANTS_SUM)
    for index in range(chunks):
        chunk = chunks - 1 - index
        i = chunk * BC + tl.arange(0, BC)
        real = i < T
        relative, low_i, key = _positions(decay, low, mask, i, real, HAS_DECAY, HAS_LOW, HAS_MASK)
        reads = _factor(from_past, i, real, HAS_PASSING)
        enters = _factor(into_state, i, real, HAS_PASSING)
        keys = rows_of(k, i, d, real, D)
        values = rows_of(v, i, e, real, E)
        through = product(values, tl.trans(state).to(values.dtype), PRECISION)
        given = product(keys, state.to(keys.dtype), PRECISION)
        ones = tl.sum(keys.to(tl.float32) * sums[None, :], 1)
        if WANTS_SUM:
            through += sums[None, :]
        if HAS_0:
            given += state0[None, :]
            ones += tl.max(sum0, 0)
        dk_chunk = through * enters[:, None]
        dv_chunk = given * enters[:, None]
        ones = ones * enters
        if HAS_PASSING:
            kept = tl.load(keep + n * chunks + chunk)
            state, sums, state0, sum0 = state * kept, sums * kept, state0 * kept, sum0 * kept
        for g in tl.static_range(G):
            head = n * G + g
            queries = rows_of(q + head * T * D, i, d, real, D)
            wanted = rows_of(dy + head * T * E, i, e, real, E)
            w = value(product(queries, tl.trans(keys), PRECISION), coefficients, 1)
            w = _inside(w, relative, low_i, key, i, real, HAS_DECAY, HAS_LOW, HAS_MASK)
            dw = product(wanted, tl.trans(values), PRECISION)
            one = tl.zeros([BC], tl.float32)
            if WANTS_SUM:
                one = tl.load(dr + head * T + i, mask=real, other=0.0)
                dw += one[:, None]
                ones += tl.sum(w.to(wanted.dtype).to(tl.float32) * one[:, None], 0)
            dx = _inside(dw * c1, relative, low_i, key, i, real, HAS_DECAY, HAS_LOW, HAS_MASK)
            dv_chunk = add_product(dv_chunk, tl.trans(w.to(wanted.dtype)), wanted, PRECISION)
            dk_chunk = add_product(dk_chunk, tl.trans(dx.to(queries.dtype)), queries, PRECISION)
            leaving = (queries.to(tl.float32) * (reads * c1)[:, None]).to(queries.dtype)
            state = add_product(state, tl.trans(leaving), wanted, PRECISION)
            sums += tl.sum(leaving.to(tl.float32) * one[:, None], 0)
            if HAS_0:
                state0 += tl.sum(wanted.to(tl.float32) * (reads * c0)[:, None], 0)
                sum0 += tl.sum(one * reads * c0, 0)
        put_rows(dk + n * T * D, i, d, real, dk_chunk, D)
        put_rows(dv + n * T * E, i, e, real, dv_chunk, E)
        if WANTS_SUM:
            tl.store(d_ones + n * T + i, ones, mask=real)
    _put_state(S_end, Z_end, n, d, e, state, sums, state0, sum0, D, E, HAS_0, WANTS_SUM)
