"""Products and bytes of the kernels, counted from their tiles, against the least that is possible.

The least number of bytes is every input once and every output once; the least number of products leaves out pairs that
nobody sees and monomials that are counted twice. Numbers that a kernel sums up leave it in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

from softmax_rnn.attention.forms.triton import CHUNK
from softmax_rnn.attention.kernels.triton.step import FEATURES
from softmax_rnn.attention.kernels.triton.tiles import Tile, padded

SUM_BYTES = 4


@dataclass(frozen=True)
class Shape:
    """One head: T positions of dimension D, numbers of so many bytes."""

    time: int = 8192
    dim: int = 64
    bytes: int = 2


@dataclass(frozen=True)
class Count:
    """What a kernel does, and the least it could do."""

    done: float
    least: float

    @property
    def ratio(self) -> float:
        """How many times the least."""
        return self.done / self.least


def pairs(shape: Shape) -> Count:
    """Pairs of positions: those that are seen, without the tiles' edges."""
    return Count(0.0, shape.time * (shape.time + 1) / 2)


def tiled_pairs(shape: Shape, tile: Tile) -> int:
    """Pairs in the tiles on and below the diagonal."""
    blocks = range(0, shape.time, tile.queries)
    return sum(tile.queries * -(-min(start + tile.queries, shape.time) // tile.keys) * tile.keys for start in blocks)


def block_products(shape: Shape, tile: Tile) -> Count:
    """Forward: q·k and w·v of every pair in a tile."""
    return Count(2 * shape.dim * tiled_pairs(shape, tile), 2 * shape.dim * pairs(shape).least)


def block_gradient_products(shape: Shape, by_key: Tile, by_query: Tile) -> Count:
    """Backward: q·k, dy·v, dv, dk by keys, and q·k, dy·v, dq by queries; the least is each of the five once."""
    done = 4 * tiled_pairs(shape, by_key) + 3 * tiled_pairs(shape, by_query)
    return Count(shape.dim * done, 5 * shape.dim * pairs(shape).least)


def class_products(dim: int) -> int:
    """Monomials of degree 2 in the tiles of all classes, as `Layout.classes` has them."""
    total, start, columns = 0, 0, padded(dim)
    while columns > 16 and padded(dim) // columns < 8:
        stop = min(start + columns // 2, dim)
        total += (stop - start) * columns
        start, columns = start + columns // 2, columns // 2
    return total + (dim - start) * columns


def order_2_products(shape: Shape, tile: Tile) -> Count:
    """Forward through states: what chunks add, what queries read, and the pairs inside a chunk."""
    dim, chunks = shape.dim, -(-shape.time // CHUNK)
    inside = Shape(CHUNK, dim, shape.bytes)
    done = shape.time * 2 * (class_products(dim) + dim + 1) * dim
    least = shape.time * 2 * (dim * (dim + 1) / 2 + dim + 1) * dim
    return Count(done + chunks * 2 * dim * tiled_pairs(inside, tile), least + chunks * 2 * dim * pairs(inside).least)


def linear_bytes(shape: Shape, has_decay: bool = False) -> Count:
    """Forward walk with a row sum: q, k, v in, numerator and row sum out, the state of the head at the end."""
    row = 3 * shape.dim * shape.bytes + (shape.dim + 1) * SUM_BYTES
    state = shape.dim * (shape.dim + 1) * SUM_BYTES
    passing = (8 + 2 * SUM_BYTES) if has_decay else 0
    decay = 8 if has_decay else 0
    return Count(shape.time * (row + passing) + state, shape.time * (row + decay) + state)


def linear_gradient_bytes(shape: Shape) -> Count:
    """Backward: one walk reads k, v, dy, the other q, k, v, dy; three gradients out."""
    out = 3 * shape.dim * SUM_BYTES + SUM_BYTES
    done = shape.time * (7 * shape.dim * shape.bytes + 2 * SUM_BYTES + out)
    return Count(done, shape.time * (4 * shape.dim * shape.bytes + SUM_BYTES + out))


def step_bytes(dim: int, features: int) -> Count:
    """One step: the state in and out, q, k and u in, y out; the tiles' parts of y are written and read."""
    width = dim + 1
    least = (2 * features * width + 2 * dim + 2 * width) * SUM_BYTES
    tables = 4 * features * SUM_BYTES / 16  # shared by all heads: from the cache for all but the first of 16
    return Count(least + 2 * -(-features // FEATURES) * width * SUM_BYTES + tables, least)


def counts() -> dict[str, Count]:
    """The table of docs/gpu.md: one head, T = 8192, D = 64, bfloat16, tiles of an A100."""
    from softmax_rnn.attention.kernels.triton.tiles import table

    shape = Shape()
    at = {(r["kernel"], r["target"], r["dim"], r["dtype"]): Tile(**r["tile"]) for r in table()}
    tile = {name: at[name, "sm80", 64, "bfloat16"] for name in ("block_sums", "key_gradients", "query_gradients")}
    return {
        "exp forward, products": block_products(shape, tile["block_sums"]),
        "exp backward, products": block_gradient_products(shape, tile["key_gradients"], tile["query_gradients"]),
        "order 2 forward, products": order_2_products(shape, tile["block_sums"]),
        "linear forward, bytes": linear_bytes(shape),
        "linear forward with decay, bytes": linear_bytes(shape, has_decay=True),
        "linear backward, bytes": linear_gradient_bytes(shape),
        "step of a linear state, bytes": step_bytes(64, 64),
        "step of an order 2 state, bytes": step_bytes(64, 2145),
    }
