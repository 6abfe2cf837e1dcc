"""Kernels compiled for cards that need not be there, and what their machine code says.

Registers, spills, shared memory and tensor-core instructions come from the binary: `cuobjdump` and `nvdisasm` lie in
the Triton wheel, AMD's assembly states the figures itself. `python -m softmax_rnn.bench.machine_code` adds the rows
that the table of tiles lacks.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from softmax_rnn.attention.kernels.triton.tiles import (
    KERNELS,
    SHARED_MEMORY,
    TABLE,
    Tile,
    candidates,
    padded,
    table,
    value_columns,
)
from softmax_rnn.files import write_text

DIMS = (64, 128)
DTYPES = ("bfloat16", "float32")
_POINTERS = {"bfloat16": "*bf16", "float32": "*fp32", "float16": "*fp16"}
_INPUTS = frozenset({"q", "k", "v", "dy", "x", "u"})
_TYPES = {
    "decay": "*fp64",
    "mask": "*i8",
    "negative": "*i8",
    "low": "*i32",
    "first": "*i32",
    "sink": "*i32",
    "last": "*i32",
    "clamp": "fp32",
    "score_scale": "fp32",
}
_NUMBERS = frozenset({"Tq", "T", "G", "K", "chunks"})
_OPTIONAL = {
    "HAS_DECAY": ("decay",),
    "HAS_LOW": ("low", "last"),
    "HAS_SINKS": ("first", "sink"),
    "HAS_MASK": ("mask",),
    "HAS_DR": ("dr",),
    "HAS_FACTOR": ("factor",),
    "HAS_ONES": ("ones",),
    "HAS_PASSING": ("from_past", "into_state", "keep"),
    "WANTS_SUM": ("row_sum", "Z", "r"),
    "WANTS_SIGN": ("negative",),
}

_BLOCK = dict.fromkeys(("HAS_ROWS", "HAS_CLAMP", "HAS_DECAY", "HAS_LOW", "HAS_SINKS", "HAS_MASK"), False)
_ALL = {"HAS_DECAY": True, "HAS_LOW": True, "HAS_SINKS": True, "HAS_MASK": True}
BLOCK_CASES: dict[str, dict[str, Any]] = {
    "exp, clamp, decay, every mask": _BLOCK | _ALL | {"DEGREE": 0, "HAS_CLAMP": True},
    "degree 4 by row, decay, every mask": _BLOCK | _ALL | {"DEGREE": 4, "HAS_ROWS": True},
}
STATE_CASES: dict[str, dict[str, Any]] = {
    "linear": {"BASE0": -1, "BASE1": 0, "BASE2": -1, "COUNT": 2},
    "order 2": {"BASE0": 0, "BASE1": 1, "BASE2": -2, "COUNT": 3},  # −2: behind the first two
}
LINEAR_CASES: dict[str, dict[str, Any]] = {"degree 0 and 1, decay, every mask": {"HAS_0": 1}}
BLOCK_KERNELS = ("block_sums", "key_gradients", "query_gradients")
STATE_KERNELS = ("chunk_states", "read_states", "feature_gradients")


@dataclass(frozen=True)
class Cell:
    """A kernel as it is compiled: for a card, a head dimension, a dtype and a case of flags."""

    kernel: str
    target: str
    dim: int
    dtype: str
    case: str


@dataclass(frozen=True)
class Figures:
    """What the machine code says."""

    registers: int
    spills: int
    shared_bytes: int
    tensor_instructions: int
    products: int
    products_without_tensor_cores: int


def cases_of(kernel: str) -> tuple[str, ...]:
    """The cases of a kernel, the hardest last."""
    if kernel in BLOCK_KERNELS:
        return tuple(BLOCK_CASES)
    return tuple(STATE_CASES if kernel in STATE_KERNELS else LINEAR_CASES)


def rows() -> Iterator[tuple[str, str, int, str]]:
    """Kernel, card, dimension and dtype of everything that ships."""
    yield from product(KERNELS, SHARED_MEMORY, DIMS, DTYPES)


def compiled(cell: Cell, tile: Tile) -> Any:
    """The binary of a cell with a tile."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function, constants = _function(cell.kernel), _constants(cell, tile)
    missing = {name for flag, names in _OPTIONAL.items() if not constants.get(flag, False) for name in names}
    if cell.kernel in BLOCK_KERNELS:
        missing |= {"coefficients"} if constants["DEGREE"] == 0 else {"log_scale"}
        missing |= {"d_ones"} if not (constants["HAS_DECAY"] and constants.get("HAS_DR", False)) else set()
    fixed = {name: None for name in function.arg_names if name in missing} | {
        name: value for name, value in constants.items() if name in function.arg_names
    }
    signature = {name: "constexpr" if name in fixed else _type(name, cell) for name in function.arg_names}
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(function.arg_names)
        if signature[name].startswith("*") or (name in ("T", "Tq") and signature[name] != "constexpr")
    }
    source = ASTSource(function, signature=signature, constexprs=fixed, attrs=aligned)
    kind, arch, warp = ("hip", cell.target, 64) if cell.target.startswith("gfx") else ("cuda", int(cell.target[2:]), 32)
    return triton.compile(source, target=GPUTarget(kind, arch, warp), options=tile.options)


def figures(cell: Cell, tile: Tile) -> Figures:
    """Compile and read."""
    binary = compiled(cell, tile)
    dots = re.findall(r"(?:tt\.dot|warp_group_dot) .*", binary.asm["ttgir"])
    plain = [line for line in dots if "mma" not in line.rsplit("->", 1)[-1]]
    read = _amd if cell.target.startswith("gfx") else _nvidia
    registers, spills, tensor = read(binary.asm)
    return Figures(registers, spills, binary.metadata.shared, tensor, len(dots), len(plain))


def fits(cell: Cell, measured: Figures) -> bool:
    """No spills, shared memory within the card's, and every product on tensor cores."""
    within = measured.shared_bytes <= SHARED_MEMORY[cell.target]
    on_tensor_cores = measured.tensor_instructions > 0 and not measured.products_without_tensor_cores
    return within and measured.spills == 0 and on_tensor_cores


def search(kernel: str, target: str, dim: int, dtype: str) -> dict[str, Any] | None:
    """A row of the table: the first tile that fits every case, with the figures of each; None where none does."""
    for tile in candidates(kernel, target, dtype):
        measured: dict[str, Figures] = {}
        for case in reversed(cases_of(kernel)):
            cell = Cell(kernel, target, dim, dtype, case)
            measured[case] = figures(cell, tile)
            if not fits(cell, measured[case]):
                break
        else:
            cases = {case: asdict(measured[case]) for case in cases_of(kernel)}
            row = {"kernel": kernel, "target": target, "dim": dim, "dtype": dtype, "tile": asdict(tile)}
            return row | {"cases": cases}
    return None


def complete() -> None:
    """Add the rows that the table lacks, one after the other; what was interrupted goes on where it was."""
    there = {(row["kernel"], row["target"], row["dim"], row["dtype"]): row for row in table()}
    for key in rows():
        if key in there:
            continue
        row = search(*key)
        print(*key, "no tile fits" if row is None else row["tile"], flush=True)
        if row is not None:
            there[key] = row
            lines = ",\n".join(f"  {json.dumps(there[one])}" for one in rows() if one in there)
            write_text(TABLE, f"[\n{lines}\n]\n")


def _function(kernel: str) -> Any:
    from softmax_rnn.attention.kernels.triton.device import backward, forward, linear, states

    modules = (forward, backward, states, linear)
    return next(getattr(module, kernel) for module in modules if hasattr(module, kernel))


def _type(name: str, cell: Cell) -> str:
    half = _POINTERS[cell.dtype]
    if name in _INPUTS or (name == "S" and cell.kernel in ("read_states", "feature_gradients")):
        return half
    return "i32" if name in _NUMBERS else _TYPES.get(name, "*fp32")


def _constants(cell: Cell, tile: Tile) -> dict[str, Any]:
    dim, precise = cell.dim, cell.dtype == "float32" and not cell.target.startswith("gfx")
    shared: dict[str, Any] = {"D": dim, "E": dim, "BD": padded(dim), "BE": min(padded(dim), 128)}
    shared |= {"PRECISION": "tf32x3" if precise else "ieee", "BM": tile.queries, "BN": tile.keys}
    if cell.kernel in BLOCK_KERNELS:
        sums = {"WANTS_SUM": True, "WANTS_SIGN": "degree" in cell.case} if cell.kernel == "block_sums" else {}
        return shared | BLOCK_CASES[cell.case] | sums | ({"HAS_DR": True} if not sums else {})
    if cell.case in LINEAR_CASES:
        flags = ("HAS_DR", "HAS_DECAY", "HAS_LOW", "HAS_MASK", "HAS_PASSING", "HAS_STATE", "WANTS_SUM")
        return shared | dict.fromkeys(flags, True) | LINEAR_CASES[cell.case] | {"G": 1, "BC": tile.queries}
    case = STATE_CASES[cell.case]
    squares = case["BASE2"] != -1
    features = dim + (1 + dim * (dim + 1) // 2 if squares else 0)
    shared |= case | {"BASE2": 1 + dim if squares else -1, "CHUNK": 512, "F": features, "W": dim, "SQUARES": squares}
    shared["BE"] = value_columns(dim, cell.dtype)
    shared |= {"A0": 0, "A1": dim // 2 if squares else 0, "FIRST": True, "QUERY": True, "HAS_ROWS": squares}
    return shared | {"HAS_FACTOR": True, "HAS_ONES": True, "WANTS_SUM": True}


def _nvidia(asm: dict[str, Any]) -> tuple[int, int, int]:
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(asm["cubin"])
        file.flush()
        usage = _told(tools / "cuobjdump", "--dump-resource-usage", file.name)
        code = _told(tools / "nvdisasm", "-c", file.name)
    registers = int(re.findall(r"REG:(\d+)", usage)[0])
    return registers, len(re.findall(r"\b(?:STL|LDL)\b", code)), len(re.findall(r"\bH(?:G)?MMA\b", code))


def _amd(asm: dict[str, Any]) -> tuple[int, int, int]:
    text = asm["amdgcn"]

    def figure(name: str) -> int:
        return int(re.findall(rf"\.{name}:\s+(\d+)", text)[0])

    spills = figure("vgpr_spill_count") + figure("sgpr_spill_count")
    return figure("vgpr_count"), spills, len(re.findall(r"\bv_s?mfmac?_", text))


def _told(tool: Path, *arguments: str) -> str:
    return subprocess.run([str(tool), *arguments], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    complete()
