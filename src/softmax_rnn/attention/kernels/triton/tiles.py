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
from typing import TYPE_CHECKING, Any

from softmax_rnn.files import cache_folder

if TYPE_CHECKING:
    import torch

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
    registers: int | None = None
    """What a thread may take; under pressure the assembler of sm_80 settles for 32 unless this is given."""

    @property
    def options(self) -> dict[str, int]:
        """Options of the compiler, besides the sizes."""
        options = {"num_warps": self.warps, "num_stages": self.stages, "enable_fp_fusion": True}
        return options if self.registers is None else options | {"maxnreg": self.registers}

    @property
    def launch(self) -> dict[str, int]:
        return {"BM": self.queries, "BN": self.keys, **self.options}


INTERPRETED = Tile(16, 16)
# Queries, keys, warps and stages by kernel and width of the numbers in bytes, those that should be fastest
# first. Eight warps want 128 rows: fewer are kept twice.
_NVIDIA = {
    ("block_sums", 2): ((128, 64, 8, 2), (128, 32, 8, 2), (64, 32, 4, 1), (32, 32, 4, 1)),
    ("block_sums", 4): ((64, 32, 4, 1), (32, 32, 4, 1), (16, 32, 4, 1), (16, 16, 4, 1)),
    ("key_gradients", 2): ((32, 64, 8, 1), (16, 64, 8, 1), (16, 32, 8, 1), (16, 16, 8, 1)),
    ("key_gradients", 4): ((16, 32, 8, 1), (16, 16, 8, 1), (16, 16, 4, 1)),
    ("query_gradients", 2): ((128, 32, 8, 1), (32, 32, 4, 1), (16, 16, 4, 1)),
    ("query_gradients", 4): ((32, 16, 4, 1), (16, 16, 4, 1)),
    ("chunk_states", 2): ((64, 64, 8, 2), (64, 32, 8, 1), (64, 16, 8, 1)),
    ("chunk_states", 4): ((64, 32, 8, 1), (64, 16, 8, 1)),
    ("read_states", 2): ((64, 16, 4, 2), (64, 16, 8, 1), (32, 16, 4, 1), (16, 16, 4, 1)),
    ("read_states", 4): ((32, 16, 8, 1), (16, 16, 4, 1), (16, 16, 8, 1)),
    ("feature_gradients", 2): ((64, 16, 8, 1), (32, 16, 8, 1), (16, 16, 4, 1)),
    ("feature_gradients", 4): ((32, 16, 8, 1), (16, 16, 8, 1), (16, 16, 4, 1)),
    ("linear_sums", 2): ((64, 64, 8, 1), (32, 32, 4, 1), (16, 16, 8, 1)),
    ("linear_sums", 4): ((32, 32, 4, 1), (16, 16, 8, 1)),
    ("linear_query_gradients", 2): ((32, 32, 4, 1), (16, 16, 4, 1), (16, 16, 8, 1)),
    ("linear_query_gradients", 4): ((16, 16, 4, 1), (16, 16, 8, 1)),
    ("linear_key_gradients", 2): ((16, 16, 4, 1),),
    ("linear_key_gradients", 4): ((16, 16, 8, 1),),
}
_AMD = {
    ("block_sums", 2): ((128, 32, 8, 1), (64, 32, 8, 1), (64, 16, 8, 1), (32, 16, 8, 1)),
    ("block_sums", 4): ((64, 16, 8, 1), (32, 16, 8, 1), (16, 16, 8, 1)),
    ("key_gradients", 2): ((16, 64, 8, 1), (16, 32, 8, 1), (16, 16, 8, 1)),
    ("key_gradients", 4): ((16, 32, 8, 1), (16, 16, 8, 1)),
    ("query_gradients", 2): ((64, 16, 8, 1), (32, 16, 8, 1), (16, 16, 8, 1)),
    ("query_gradients", 4): ((32, 16, 8, 1), (16, 16, 8, 1)),
    ("chunk_states", 2): ((64, 32, 8, 1), (64, 16, 8, 1)),
    ("chunk_states", 4): ((64, 16, 8, 1),),
    ("read_states", 2): ((64, 16, 8, 1), (32, 16, 8, 1), (16, 16, 8, 1)),
    ("read_states", 4): ((32, 16, 8, 1), (16, 16, 8, 1)),
    ("feature_gradients", 2): ((32, 16, 8, 1), (16, 16, 8, 1)),
    ("feature_gradients", 4): ((32, 16, 8, 1), (16, 16, 8, 1)),
    ("linear_sums", 2): ((32, 32, 8, 1), (16, 16, 8, 1)),
    ("linear_sums", 4): ((16, 16, 8, 1),),
    ("linear_query_gradients", 2): ((32, 32, 8, 1), (16, 16, 8, 1)),
    ("linear_query_gradients", 4): ((16, 16, 8, 1),),
    ("linear_key_gradients", 2): ((16, 16, 8, 1),),
    ("linear_key_gradients", 4): ((16, 16, 8, 1),),
}
KERNELS = tuple(dict.fromkeys(kernel for kernel, _ in _NVIDIA))


def candidates(kernel: str, card: str, dtype: str) -> Iterator[Tile]:
    """The tiles that may ship, those that should be fastest first."""
    sizes = _AMD if card.startswith("gfx") else _NVIDIA
    for size in sizes[kernel, 4 if dtype == "float32" else 2]:
        yield Tile(*size, registers=255 if card == "sm80" else None)


def interpreted() -> bool:
    """Whether kernels run on the CPU, by Triton's interpreter."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def precision(dtype: torch.dtype) -> str:
    """How products of float32 are made: three tf32 products on NVIDIA's cards, float32 itself on AMD's."""
    import torch

    return "tf32x3" if dtype == torch.float32 and torch.version.hip is None else "ieee"


def padded(width: int) -> int:
    """The side of a tile that holds so many columns."""
    return max(16, 1 << (width - 1).bit_length())


def value_columns(width: int, dtype: str) -> int:
    """Columns of a value that one program of a state works on; more of float32 would leave the registers."""
    return min(padded(width), 64 if dtype == "float32" else 128)


@cache
def target() -> str:
    """The card in the table whose tiles fit the one that is there."""
    import torch

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


def ships(kernel: str, key_dim: int, value_dim: int, dtype: torch.dtype) -> bool:
    """Whether the table has a tile: a walk whose state does not fit the registers has none."""
    width = max(padded(key_dim), padded(value_dim))
    name = str(dtype).removeprefix("torch.")
    return width <= 128 and (interpreted() or _key(kernel, width, name) in _shipped(target()))


def _key(kernel: str, width: int, dtype: str) -> tuple[str, int, str]:
    return kernel, 64 if width <= 64 else 128, "float32" if dtype == "float32" else "bfloat16"


@cache
def _tile(kernel: str, width: int, dtype: str) -> Tile:
    key = _key(kernel, width, dtype)
    # Where no tile is proven, the smallest.
    best = _tuned().get(key) or _shipped(target()).get(key) or list(candidates(kernel, target(), dtype))[-1]
    if width <= 128:
        return best
    # Twice the columns, half the rows.
    return Tile(max(best.queries // 2, 16), max(best.keys // 2, 16), best.warps, best.stages)


def table() -> list[dict[str, Any]]:
    """The rows of the table."""
    return json.loads(TABLE.read_text(encoding="utf-8"))


@cache
def _shipped(card: str) -> dict[tuple[str, int, str], Tile]:
    return {(r["kernel"], r["dim"], r["dtype"]): Tile(**r["tile"]) for r in table() if r["target"] == card}


def tuned_file() -> Path:
    """Where the tiles that were fastest on this card are kept."""
    import torch

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
