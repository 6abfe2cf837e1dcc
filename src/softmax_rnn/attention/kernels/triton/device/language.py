"""What the kernels share: products, scores and who sees whom.

A score is a plug of two functions, `value` and `slope`; DEGREE 0 stands for exp, n for a polynomial of degree n whose
coefficients lie behind a pointer, or behind one pointer per row where each query has its own.
Logarithms are to the base 2, the one that the hardware knows.
"""

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
LOWEST = tl.constexpr(-1.0e30)


@triton.jit
def add_product(total, a, b, PRECISION: tl.constexpr):
    """total + a·b, summed in float32."""
    if INTERPRETED:
        # The interpreter would multiply the bits of bfloat16; in float32 such products are exact.
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, acc=total, input_precision=PRECISION)


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """a·b, summed in float32."""
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def rows_of(pointer, row, column, real, WIDTH: tl.constexpr):
    """Rows of a matrix with WIDTH columns, 0 beyond its borders."""
    inside = real[:, None] & (column < WIDTH)[None, :]
    return tl.load(pointer + row[:, None] * WIDTH + column[None, :], mask=inside, other=0.0)


@triton.jit
def columns_of(pointer, row, column, real, WIDTH: tl.constexpr):
    """The same rows as columns."""
    inside = real[None, :] & (column < WIDTH)[:, None]
    return tl.load(pointer + row[None, :] * WIDTH + column[:, None], mask=inside, other=0.0)


@triton.jit
def put_rows(pointer, row, column, real, x, WIDTH: tl.constexpr):
    """Write rows of a matrix with WIDTH columns."""
    inside = real[:, None] & (column < WIDTH)[None, :]
    tl.store(pointer + row[:, None] * WIDTH + column[None, :], x.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def scaled(x, score_scale, DEGREE: tl.constexpr):
    """x times what was left out of the queries of exp; the coefficients of a polynomial have it."""
    if DEGREE == 0:
        x = x * score_scale
    return x


@triton.jit
def value(x, coefficients, DEGREE: tl.constexpr):
    """f(x) of a polynomial."""
    w = tl.zeros_like(x) + tl.load(coefficients + DEGREE)
    for n in tl.static_range(DEGREE - 1, -1, -1):
        w = w * x + tl.load(coefficients + n)
    return w


@triton.jit
def slope(x, coefficients, DEGREE: tl.constexpr):
    """f'(x) of a polynomial."""
    w = tl.zeros_like(x) + tl.load(coefficients + DEGREE) * DEGREE
    for n in tl.static_range(DEGREE - 1, 0, -1):
        w = w * x + tl.load(coefficients + n) * n
    return w


@triton.jit
def coefficients_of(pointer, row, last, DEGREE: tl.constexpr, HAS_ROWS: tl.constexpr):
    """Where the coefficients of rows begin; those beyond the last one read the last one's."""
    if HAS_ROWS:
        pointer = pointer + tl.minimum(row, last) * (DEGREE + 1)
    return pointer


@triton.jit
def sees(i, j, low, first, sink, key, HAS_LOW: tl.constexpr, HAS_SINKS: tl.constexpr, HAS_MASK: tl.constexpr):
    """Whether query i sees key j: both are tensors that broadcast, ``low``, ``first`` and ``sink`` go with i,
    ``key`` with j.
    """
    seen = j <= i
    if HAS_SINKS:
        seen = seen & ((j >= low) | ((j >= first) & (j < sink)))
    elif HAS_LOW:
        seen = seen & (j >= low)
    if HAS_MASK:
        seen = seen & (key != 0)
    return seen


@triton.jit
def faded(w, log, seen, HAS_DECAY: tl.constexpr, MASKED: tl.constexpr):
    """w times 2^log, 0 where nothing is seen."""
    if HAS_DECAY:
        if MASKED:
            # Before exp2: a decay that looks into the future may overflow.
            log = tl.where(seen, log, float("-inf"))
        w = w * tl.exp2(log)
    elif MASKED:
        w = tl.where(seen, w, 0.0)
    return w


@triton.jit
def weights(x, log, seen, coefficients, DEGREE: tl.constexpr, HAS_DECAY: tl.constexpr, MASKED: tl.constexpr):
    """Weights from scores, and the logarithm (base 2) of what multiplies them."""
    if DEGREE == 0:
        z = x * LOG2E + log
        if MASKED:
            z = tl.where(seen, z, float("-inf"))
        w = tl.exp2(z)
    else:
        w = value(x, coefficients, DEGREE)
        w = faded(w, log, seen, HAS_DECAY, MASKED)
    return w


@triton.jit
def slopes(x, log, seen, coefficients, DEGREE: tl.constexpr, HAS_DECAY: tl.constexpr, MASKED: tl.constexpr):
    """The derivatives of `weights`."""
    if DEGREE == 0:
        s = weights(x, log, seen, coefficients, DEGREE, HAS_DECAY, MASKED)
    else:
        s = slope(x, coefficients, DEGREE)
        s = faded(s, log, seen, HAS_DECAY, MASKED)
    return s
