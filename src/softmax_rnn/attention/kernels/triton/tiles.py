"""Sizes of blocks, warps and stages of each kernel.

What ships stands in tiles.json beside this file, with the figures of its machine code: one tile per kernel, card,
dimension and dtype, the first of `candidates` that spills nothing and fits the card's shared memory. `softmax-rnn
bench attention --device cuda` times the candidates on the card that is there and keeps the fastest in the cache folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from softmax_rnn.files import cache_folder

TABLE = Path(__file__).with_name("tiles.json")
SHARED_MEMORY = {"sm80": 163 * 1024, "sm90": 227 * 1024, "gfx942": 64 * 1024}
"""Bytes that one program may take: A100, H100, MI300."""


@dataclass(frozen=True)
class Tile:
    """So many queries and keys at a time."""

    queries: int
    keys: int
    warps: int = 4
    stages: int = 2

    @property
    def launch(self) -> dict[str, int]:
        """As arguments of a launch."""
        return {"BM": self.queries, "BN": self.keys, "num_warps": self.warps, "num_stages": self.stages}


INTERPRETED = Tile(16, 16)
_SIZES = {
    "block_sums": ((128, 64), (128, 32), (64, 64), (64, 32), (32, 32), (16, 32), (16, 16)),
    "key_gradients": ((64, 128), (32, 128), (64, 64), (32, 64), (32, 32), (16, 32), (16, 16)),
    "query_gradients": ((128, 64), (128, 32), (64, 64), (64, 32), (32, 32), (16, 32), (16, 16)),
    "chunk_states": ((64, 64), (64, 32), (64, 16)),
    "read_states": ((128, 16), (64, 16), (32, 16), (16, 16)),
    "feature_gradients": ((128, 16), (64, 16), (32, 16), (16, 16)),
}


def candidates(kernel: str, target: str, dim: int, dtype: str) -> Iterator[Tile]:
    """The tiles that may ship, those that should be fastest first."""
    deep = 1 if target.startswith("gfx") else 2
    for queries, keys in _SIZES[kernel]:
        for warps in (8, 4):
            for stages in range(deep, 0, -1):
                yield Tile(queries, keys, warps, stages)


def interpreted() -> bool:
    """Whether kernels run on the CPU, by Triton's interpreter."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def precision(dtype: torch.dtype) -> str:
    """How products of float32 are made: three tf32 products on NVIDIA's cards, float32 itself on AMD's."""
    return "tf32x3" if dtype == torch.float32 and torch.version.hip is None else "ieee"


def padded(width: int) -> int:
    """The side of a tile that holds so many columns."""
    return max(16, 1 << (width - 1).bit_length())


@cache
def target() -> str:
    """The card in the table whose tiles fit the one that is there."""
    if torch.version.hip is not None:
        return "gfx942"
    return "sm90" if torch.cuda.get_device_capability()[0] >= 9 else "sm80"


_TRIED: dict[str, Tile] = {}


@contextmanager
def trying(kernel: str, tile: Tile) -> Iterator[None]:
    """Inside, the kernel has this tile."""
    _TRIED[kernel] = tile
    try:
        yield
    finally:
        del _TRIED[kernel]


def tile(kernel: str, key_dim: int, value_dim: int, dtype: torch.dtype) -> Tile:
    """The tile of a kernel."""
    if interpreted():
        return INTERPRETED
    if kernel in _TRIED:
        return _TRIED[kernel]
    return _tile(kernel, max(padded(key_dim), padded(value_dim)), str(dtype).removeprefix("torch."))


@cache
def _tile(kernel: str, width: int, dtype: str) -> Tile:
    key = (kernel, 64 if width <= 64 else 128, "float32" if dtype == "float32" else "bfloat16")
    found = _tuned().get(key) or _shipped(target())[key]
    if width <= 128:
        return found
    # Twice the columns, half the rows.
    return Tile(max(found.queries // 2, 16), max(found.keys // 2, 16), found.warps, found.stages)


def table() -> list[dict[str, Any]]:
    """The rows of the table."""
    return json.loads(TABLE.read_text())


def _shipped(card: str) -> dict[tuple[str, int, str], Tile]:
    return {(r["kernel"], r["dim"], r["dtype"]): Tile(**r["tile"]) for r in table() if r["target"] == card}


def tuned_file() -> Path:
    """Where the tiles that were fastest on this card are kept."""
    name = "".join(c if c.isalnum() else "-" for c in torch.cuda.get_device_name())
    return cache_folder() / f"tiles-{name}.json"


@cache
def _tuned() -> dict[tuple[str, int, str], Tile]:
    path = tuned_file()
    if not path.exists():
        return {}
    return {(r["kernel"], r["dim"], r["dtype"]): Tile(**r["tile"]) for r in json.loads(path.read_text())}


def forget() -> None:
    """Read the files anew at the next launch."""
    _tile.cache_clear()
    _tuned.cache_clear()


def wide_tile() -> int:
    """Numbers that one program of an elementwise kernel works on."""
    return 4096 if interpreted() else 1024
