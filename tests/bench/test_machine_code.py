"""What the compiler makes of the kernels, for cards that are not here: the table of tiles is recomputed, its limits
hold, and products and bytes counted from its tiles stay near the least that is possible.
"""

from __future__ import annotations

from itertools import product

import pytest
import torch

from softmax_rnn.attention.kernels.triton import tiles
from softmax_rnn.attention.kernels.triton.tiles import KERNELS, SHARED_MEMORY, Tile, candidates, table
from softmax_rnn.bench.kernel_counts import counts
from softmax_rnn.bench.machine_code import (
    BLOCK_KERNELS,
    DIMS,
    DTYPES,
    STATE_KERNELS,
    Cell,
    Figures,
    cases_of,
    figures,
    fits,
)

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


def cells() -> list[object]:
    """Every case of every row; one is quick."""
    quick = {("block_sums", "sm80", 64, "bfloat16", "exp, clamp, decay, every mask")}
    result = []
    for row in TABLE:
        for case in row["cases"]:
            key = (row["kernel"], row["target"], row["dim"], row["dtype"], case)
            result.append(
                pytest.param(row, case, marks=[] if key in quick else [pytest.mark.slow], id="-".join(map(str, key)))
            )
    return result


@pytest.mark.parametrize(("row", "case"), cells())
def test_the_compiler_still_says_what_the_table_says(row, case, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    cell = Cell(row["kernel"], row["target"], row["dim"], row["dtype"], case)
    assert figures(cell, Tile(**row["tile"])) == Figures(**row["cases"][case])


def test_every_row_spills_nothing_fits_and_uses_tensor_cores():
    for row in TABLE:
        assert row["cases"].keys() == set(cases_of(row["kernel"]))
        for case, result in row["cases"].items():
            cell = Cell(row["kernel"], row["target"], row["dim"], row["dtype"], case)
            assert fits(cell, Figures(**result)), (cell, result)
            assert result["products"] > 0


def test_every_kernel_of_blocks_and_states_has_proven_tiles():
    """Of linear walks some have none, and are not used."""
    there = {(row["kernel"], row["target"], row["dim"], row["dtype"]) for row in TABLE}
    assert len(there) == len(TABLE)
    assert there <= set(product(KERNELS, SHARED_MEMORY, DIMS, DTYPES))
    assert there >= set(product((*BLOCK_KERNELS, *STATE_KERNELS), SHARED_MEMORY, DIMS, DTYPES))


def test_tiles_that_ship_are_candidates():
    for row in TABLE:
        assert Tile(**row["tile"]) in candidates(row["kernel"], row["target"], row["dtype"])


def test_products_and_bytes_are_near_the_least():
    result = counts()
    assert result.keys() == LIMITS.keys()
    for name, count in result.items():
        assert 1 <= count.ratio <= LIMITS[name], (name, count.ratio)


@pytest.mark.parametrize("card_name", ["sm80", "sm90"])
def test_the_shipped_tiles_are_taken(monkeypatch, card_name):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(tiles, "target", lambda: card_name)
    monkeypatch.setattr(tiles, "_tuned", dict)
    tiles._tile.cache_clear()
    rows = {
        (row["kernel"], row["dim"], row["dtype"]): row["tile"] for row in tiles.table() if row["target"] == card_name
    }
    narrow, wide = (tiles.tile("block_sums", dim, 64, torch.bfloat16) for dim in (40, 200))
    tiles._tile.cache_clear()
    assert narrow == tiles.Tile(**rows["block_sums", 64, "bfloat16"])
    assert wide.queries == max(rows["block_sums", 128, "bfloat16"]["queries"] // 2, 16)
