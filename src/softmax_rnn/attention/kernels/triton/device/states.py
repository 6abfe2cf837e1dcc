"""States of fixed size, chunk by chunk; features are made in registers and never written.

The monomials of degree 2 that begin with x_a are x_a · x_b, b ≥ a: neighbours in the order of the state. Those of all
a from A0 on lie in the last W columns, so a tile of features is one column of x times its last W columns, and what a
chunk adds to the state is an ordinary W × E product. The host launches one class of a after the other with W halved,
which wastes a third of the products. DEGREES 1 stands for the rows of degree 0 and 1.

Each kernel serves both sides: with QUERY the features carry multinomials and coefficients. BASE0, BASE1 and BASE2 say
where the rows of a degree begin, −1 where there are none; COUNT is the number of coefficients.
"""

import triton
import triton.language as tl

from softmax_rnn.attention.kernels.triton.device.language import add_product, product, put_rows, rows_of


@triton.jit
def _place(a, b, D: tl.constexpr, BASE1: tl.constexpr, BASE2: tl.constexpr, SQUARES: tl.constexpr):
    """The rows of the state that belong to column a times columns b, or to columns b alone."""
    row = BASE1 + b
    if SQUARES:
        row = BASE2 + a * D - a * (a - 1) // 2 + b - a
    return row


@triton.jit
def _times(a, b):
    """How often x_a · x_b occurs in the square of a sum; 0 for what another class has."""
    return tl.where(b > a, 2.0, tl.where(b == a, 1.0, 0.0))


@triton.jit
def chunk_states(
    x, u, factor, ones, coefficients, S, Z, T, chunks, G,
    CHUNK: tl.constexpr, D: tl.constexpr, E: tl.constexpr, F: tl.constexpr, BE: tl.constexpr, BN: tl.constexpr,
    W: tl.constexpr, BD: tl.constexpr, A0: tl.constexpr, BASE0: tl.constexpr, BASE1: tl.constexpr,
    BASE2: tl.constexpr, COUNT: tl.constexpr, SQUARES: tl.constexpr, QUERY: tl.constexpr, HAS_ROWS: tl.constexpr,
    HAS_FACTOR: tl.constexpr, HAS_ONES: tl.constexpr, WANTS_SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """S[chunk] = Σ_j φ(x_j) factor_j u_jᵀ and Z[chunk] = Σ_j φ(x_j) factor_j ones_j, over the positions of a chunk
    and the G heads that share the state.
    """
    a = A0 + tl.program_id(0)
    chunk = tl.program_id(1)
    tiles: tl.constexpr = (E + BE - 1) // BE
    n = (tl.program_id(2) // tiles).to(tl.int64)
    b = BD - W + tl.arange(0, W)
    e = tl.program_id(2) % tiles * BE + tl.arange(0, BE)
    state = tl.zeros([W, BE], tl.float32)
    sums = tl.zeros([W], tl.float32)
    state0 = tl.zeros([BE], tl.float32)
    sum0 = tl.zeros([BN], tl.float32)
    for g in range(G):
        head = n * G + g
        for at in range(chunk * CHUNK, tl.minimum((chunk + 1) * CHUNK, T), BN):
            j = at + tl.arange(0, BN)
            real = j < T
            columns = rows_of(x + head * T * D, j, b, real, D)
            values = rows_of(u + head * T * E, j, e, real, E)
            weight = tl.where(real, 1.0, 0.0)
            if HAS_FACTOR:
                weight = tl.load(factor + n * T + j, mask=real, other=0.0)
            coef = coefficients
            if HAS_ROWS:
                coef = coefficients + (head * T + tl.minimum(j, T - 1)) * COUNT
            one = weight
            if HAS_ONES:
                one = tl.load(ones + head * T + j, mask=real, other=0.0)
            features = columns.to(tl.float32)
            scaled = weight
            if SQUARES:
                scaled = weight * tl.load(x + head * T * D + j * D + a, mask=real, other=0.0).to(tl.float32)
                if QUERY:
                    scaled = scaled * tl.load(coef + 2)
                    features = features * _times(a, b)[None, :]
            elif QUERY:
                scaled = weight * tl.load(coef + 1)
            features = (features * scaled[:, None]).to(columns.dtype)
            state = add_product(state, tl.trans(features), values, PRECISION)
            if WANTS_SUM:
                features = features.to(tl.float32)
                sums += tl.sum(features * one[:, None], 0) if HAS_ONES else tl.sum(features, 0)
            if not SQUARES and BASE0 >= 0:
                first = weight * tl.load(coef) if QUERY else weight
                state0 += tl.sum(values.to(tl.float32) * first[:, None], 0)
                sum0 += first * one if HAS_ONES else first
    place = (n * chunks + chunk) * F
    row = _place(a, b, D, BASE1, BASE2, SQUARES)
    own = b < D
    if SQUARES:
        own = own & (b >= a)
    if SQUARES or BASE1 >= 0:
        inside = own[:, None] & (e < E)[None, :]
        tl.store(S + (place + row)[:, None] * E + e[None, :], state, mask=inside)
    # Programs that differ in the columns of u have the same sums: the first one writes them.
    if WANTS_SUM and (SQUARES or BASE1 >= 0):
        tl.store(Z + place + row, sums, mask=own & (b * 0 + tl.program_id(2) % tiles == 0))
    if not SQUARES and BASE0 >= 0:
        tl.store(S + (place + BASE0) * E + e, state0, mask=e < E)
        if WANTS_SUM:
            tl.store(Z + place + BASE0 + e * 0, tl.sum(sum0, 0) + tl.zeros([BE], tl.float32), mask=e == 0)


@triton.jit
def scan(
    added, keep, start, before, end, chunks, NUMBERS,
    HAS_KEEP: tl.constexpr, HAS_START: tl.constexpr, REVERSE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What stands before each chunk (with REVERSE: behind it), and what is there at the end."""
    n = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = at < NUMBERS
    running = tl.zeros([BLOCK], tl.float32)
    if HAS_START:
        running = tl.load(start + n * NUMBERS + at, mask=real, other=0.0)
    for index in range(chunks):
        chunk = chunks - 1 - index if REVERSE else index
        place = (n * chunks + chunk) * NUMBERS + at
        new = tl.load(added + place, mask=real, other=0.0)
        tl.store(before + place, running.to(before.dtype.element_ty), mask=real)
        if HAS_KEEP:
            running = running * tl.load(keep + n * chunks + chunk)
        running = running + new
    tl.store(end + n * NUMBERS + at, running, mask=real)


@triton.jit
def _read_class(
    total, mass, x, S, Z, coefficients, place, row, real, e, A0, A1,
    W: tl.constexpr, BD: tl.constexpr, D: tl.constexpr, E: tl.constexpr, BASE1: tl.constexpr, BASE2: tl.constexpr,
    QUERY: tl.constexpr, WANTS_SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The monomials x_a · x_b of a class of a, times their rows of the state."""
    b = BD - W + tl.arange(0, W)
    columns = rows_of(x, row, b, real, D).to(tl.float32)
    for a in range(A0, A1):
        column = tl.load(x + row * D + a, mask=real, other=0.0).to(tl.float32)
        if QUERY:
            column = column * tl.load(coefficients + 2)
            features = columns * column[:, None] * _times(a, b)[None, :]
        else:
            features = columns * column[:, None]
        at = place + _place(a, b, D, BASE1, BASE2, True)
        own = (b >= a) & (b < D)
        state = tl.load(S + at[:, None] * E + e[None, :], mask=own[:, None] & (e < E)[None, :], other=0.0)
        features = features.to(state.dtype)
        total = add_product(total, features, state, PRECISION)
        if WANTS_SUM:
            mass += tl.sum(features.to(tl.float32) * tl.load(Z + at, mask=own, other=0.0)[None, :], 1)
    return total, mass


@triton.jit
def read_states(
    x, S, Z, factor, coefficients, y, r, T, chunks, G,
    CHUNK: tl.constexpr, D: tl.constexpr, E: tl.constexpr, F: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr,
    BM: tl.constexpr, BASE0: tl.constexpr, BASE1: tl.constexpr, BASE2: tl.constexpr, COUNT: tl.constexpr,
    QUERY: tl.constexpr, HAS_ROWS: tl.constexpr, HAS_FACTOR: tl.constexpr, WANTS_SUM: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """y_i += factor_i φ(x_i) S[chunk] and r_i += factor_i φ(x_i)·Z[chunk], for BM positions of one chunk."""
    block = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    n = head // G
    row = block * BM + tl.arange(0, BM)
    real = row < T
    place = (n * chunks + block * BM // CHUNK) * F
    d = tl.arange(0, BD)
    e = tl.program_id(2) * BE + tl.arange(0, BE)
    x += head * T * D
    coef = coefficients
    if HAS_ROWS:
        coef = coefficients + (head * T + tl.minimum(row, T - 1)) * COUNT
    total = tl.zeros([BM, BE], tl.float32)
    mass = tl.zeros([BM], tl.float32)
    if BASE2 >= 0:
        # One class after the other, each half as wide; the last has 16 columns.
        total, mass = _read_class(total, mass, x, S, Z, coef, place, row, real, e, 0,
                                  tl.minimum(D, BD // 2 if BD > 16 else BD),
                                  BD, BD, D, E, BASE1, BASE2, QUERY, WANTS_SUM, PRECISION)  # fmt: skip
        if BD > 16:
            total, mass = _read_class(total, mass, x, S, Z, coef, place, row, real, e, BD // 2,
                                      tl.minimum(D, BD // 4 * 3 if BD > 32 else BD),
                                      BD // 2, BD, D, E, BASE1, BASE2, QUERY, WANTS_SUM, PRECISION)  # fmt: skip
        if BD > 32:
            total, mass = _read_class(total, mass, x, S, Z, coef, place, row, real, e, BD // 4 * 3,
                                      tl.minimum(D, BD // 8 * 7 if BD > 64 else BD),
                                      BD // 4, BD, D, E, BASE1, BASE2, QUERY, WANTS_SUM, PRECISION)  # fmt: skip
        if BD > 64:
            total, mass = _read_class(total, mass, x, S, Z, coef, place, row, real, e, BD // 8 * 7, D,
                                      BD // 8, BD, D, E, BASE1, BASE2, QUERY, WANTS_SUM, PRECISION)  # fmt: skip
    inside = (e < E)[None, :]
    if BASE1 >= 0:
        features = rows_of(x, row, d, real, D)
        at = place + BASE1 + d
        own = d < D
        state = tl.load(S + at[:, None] * E + e[None, :], mask=own[:, None] & inside, other=0.0)
        part = product(features.to(state.dtype), state, PRECISION)
        if QUERY:
            part = part * (tl.load(coef + 1) + tl.zeros([BM], tl.float32))[:, None]
        total += part
        if WANTS_SUM:
            some = tl.sum(features.to(tl.float32) * tl.load(Z + at, mask=own, other=0.0)[None, :], 1)
            mass += some * tl.load(coef + 1) if QUERY else some
    if BASE0 >= 0:
        first = tl.zeros([BM], tl.float32) + (tl.load(coef) if QUERY else 1.0)
        state0 = tl.load(S + (place + BASE0) * E + e, mask=e < E, other=0.0).to(tl.float32)
        total += first[:, None] * state0[None, :]
        if WANTS_SUM:
            mass += first * tl.load(Z + place + BASE0)
    if HAS_FACTOR:
        scale = tl.load(factor + n * T + row, mask=real, other=0.0)
        total = total * scale[:, None]
        mass = mass * scale
    total += rows_of(y + head * T * E, row, e, real, E)
    put_rows(y + head * T * E, row, e, real, total, E)
    if WANTS_SUM:
        at = r + head * T + row
        leads = real & (row * 0 + tl.program_id(2) == 0)
        tl.store(at, tl.load(at, mask=leads, other=0.0) + mass, mask=leads)


@triton.jit
def feature_gradients(
    x, u, ones, S, Z, factor, coefficients, dx, T, chunks, G,
    CHUNK: tl.constexpr, D: tl.constexpr, E: tl.constexpr, F: tl.constexpr, BD: tl.constexpr, BE: tl.constexpr,
    BM: tl.constexpr, W: tl.constexpr, A0: tl.constexpr, A1: tl.constexpr, BASE1: tl.constexpr, BASE2: tl.constexpr,
    COUNT: tl.constexpr, FIRST: tl.constexpr, QUERY: tl.constexpr, HAS_ROWS: tl.constexpr, HAS_FACTOR: tl.constexpr,
    HAS_ONES: tl.constexpr, WANTS_SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dx_i += factor_i Σ_f φ_f'(x_i) (S[chunk]_f·u_i + Z[chunk]_f ones_i): one class of monomials, and with FIRST
    those of degree 1.
    """
    block = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    n = head // G
    row = block * BM + tl.arange(0, BM)
    real = row < T
    place = (n * chunks + block * BM // CHUNK) * F
    b = BD - W + tl.arange(0, W)
    x += head * T * D
    u += head * T * E
    columns = rows_of(x, row, b, real, D).to(tl.float32)
    one = tl.where(real, 1.0, 0.0)
    if HAS_ONES:
        one = tl.load(ones + head * T + row, mask=real, other=0.0)
    coef = coefficients
    if HAS_ROWS:
        coef = coefficients + (head * T + tl.minimum(row, T - 1)) * COUNT
    total = tl.zeros([BM, W], tl.float32)
    for tile in tl.static_range((E + BE - 1) // BE):
        e = tile * BE + tl.arange(0, BE)
        wanted = rows_of(u, row, e, real, E)
        inside = (e < E)[:, None]
        if FIRST and BASE1 >= 0:
            at = place + BASE1 + b
            own = b < D
            state = tl.load(S + at[None, :] * E + e[:, None], mask=own[None, :] & inside, other=0.0)
            part = product(wanted.to(state.dtype), state, PRECISION)
            if WANTS_SUM and tile == 0:
                part += one[:, None] * tl.load(Z + at, mask=own, other=0.0)[None, :]
            if QUERY:
                part = part * (tl.load(coef + 1) + tl.zeros([BM], tl.float32))[:, None]
            total += part
        if BASE2 >= 0:
            for a in range(A0, A1):
                at = place + _place(a, b, D, BASE1, BASE2, True)
                own = (b >= a) & (b < D)
                state = tl.load(S + at[None, :] * E + e[:, None], mask=own[None, :] & inside, other=0.0)
                slope = product(wanted.to(state.dtype), state, PRECISION)
                if WANTS_SUM and tile == 0:
                    slope += one[:, None] * tl.load(Z + at, mask=own, other=0.0)[None, :]
                if QUERY:
                    slope = slope * (tl.load(coef + 2) + tl.zeros([BM], tl.float32))[:, None] * _times(a, b)[None, :]
                column = tl.load(x + row * D + a, mask=real, other=0.0).to(tl.float32)
                other = tl.sum(slope * columns, 1)
                total += slope * column[:, None] + tl.where((b == a)[None, :], other[:, None], 0.0)
    if HAS_FACTOR:
        total = total * tl.load(factor + n * T + row, mask=real, other=0.0)[:, None]
    total += rows_of(dx + head * T * D, row, b, real, D)
    put_rows(dx + head * T * D, row, b, real, total, D)
