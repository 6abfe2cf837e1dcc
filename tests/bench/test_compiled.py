"""What the compiler makes of the kernels, for cards that are not here: the table of tiles is recomputed, its limits
hold, and products and bytes counted from its tiles stay near the least that is possible.
"""

from __future__ import annotations

from itertools import product

import pytest

from softmax_rnn.attention.kernels.triton.tiles import KERNELS, SHARED_MEMORY, Tile, candidates, table
from softmax_rnn.bench.compiled import DIMS, DTYPES, Cell, Figures, cases_of, figures, fits
from softmax_rnn.bench.kernel_counts import counts

TABLE = table()
LIMITS = {
    "exp forward, products": 1.05,
    "exp backward, products": 7 / 5 * 1.02,
    "order 2 forward, products": 1.4,
    "linear forward, bytes": 1.3,
    "linear forward with decay, bytes": 1.3,
    "linear backward, bytes": 1.31,
    "step of a linear state, bytes": 1.3,
    "step of an order 2 state, bytes": 1.3,
}
"""Exp backward: seven products where five would do."""
WALKS = {"linear_sums", "linear_query_gradients", "linear_key_gradients"}


def cells() -> list[object]:
    """Every case of every row; one small kernel per maker of cards is quick."""
    quick = {("chunk_states", "sm80", 64, "bfloat16", "linear"), ("chunk_states", "gfx942", 64, "bfloat16", "linear")}
    found = []
    for row in TABLE:
        for case in row["cases"]:
            key = (row["kernel"], row["target"], row["dim"], row["dtype"], case)
            found.append(
                pytest.param(row, case, marks=[] if key in quick else [pytest.mark.slow], id="-".join(map(str, key)))
            )
    return found


@pytest.mark.parametrize(("row", "case"), cells())
def test_the_compiler_still_says_what_the_table_says(row, case, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    cell = Cell(row["kernel"], row["target"], row["dim"], row["dtype"], case)
    assert figures(cell, Tile(**row["tile"])) == Figures(**row["cases"][case])


def test_every_row_spills_nothing_fits_and_uses_tensor_cores():
    for row in TABLE:
        assert row["cases"].keys() == set(cases_of(row["kernel"]))
        for case, found in row["cases"].items():
            cell = Cell(row["kernel"], row["target"], row["dim"], row["dtype"], case)
            assert fits(cell, Figures(**found)), (cell, found)
            assert found["products"] > 0


def test_every_kernel_has_a_tile_for_every_card():
    there = {(row["kernel"], row["target"], row["dim"], row["dtype"]) for row in TABLE}
    assert len(there) == len(TABLE)
    missing = set(product(KERNELS, SHARED_MEMORY, DIMS, DTYPES)) - there
    # A walk keeps its state in registers; where that does not fit, states go through memory instead.
    assert {kernel for kernel, *_ in missing} <= WALKS


def test_tiles_that_ship_are_candidates():
    for row in TABLE:
        assert Tile(**row["tile"]) in candidates(row["kernel"], row["target"], row["dtype"])


def test_products_and_bytes_are_near_the_least():
    found = counts()
    assert found.keys() == LIMITS.keys()
    for name, count in found.items():
        assert 1 <= count.ratio <= LIMITS[name], (name, count.ratio)
