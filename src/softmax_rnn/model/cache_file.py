"""A decoding state on disk: safetensors, with the specs it belongs to in the file's metadata."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from softmax_rnn.attention.algebra import diff
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError
from softmax_rnn.files import write_whole
from softmax_rnn.validation import check_output

FORMAT = "softmax_rnn.state"
VERSION = 2
Specs = tuple[AttentionSpec | None, ...]


@dataclass(frozen=True)
class Saved:
    """The content of a file: specs, and of every layer its positions and tensors."""

    specs: Specs
    layers: list[tuple[int, dict[str, Tensor]]]


def write(path: Path, specs: Specs, layers: Sequence[tuple[int, dict[str, Tensor]]]) -> Path:
    """The tensors of all layers, and what they belong to, as one file."""
    about = {
        "version": VERSION,
        "specs": [None if spec is None else spec.to_dict() for spec in specs],
        "lengths": [length for length, _ in layers],
    }
    tensors = {f"{i}.{name}": x.contiguous() for i, (_, kept) in enumerate(layers) for name, x in kept.items()}
    # Two names for one memory are refused by safetensors: a state's tensors may be views of each other.
    tensors = {name: x.clone() for name, x in tensors.items()}
    about["sha256"] = _digest(about, tensors)
    about_text = {FORMAT: json.dumps(about)}
    return write_whole(path, lambda temporary: save_file(tensors, temporary, metadata=about_text))


def read(path: Path, device: torch.device | str) -> Saved:
    """The content of a file that `write` made."""
    if not path.is_file():
        raise InputError(f"state: there is no file {path}")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            about = _about(file)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise InputError(f"state: {path} is not a safetensors file ({error})") from error
    if about.get("version") != VERSION:
        raise InputError(f"state: {path} does not hold a state of this version of the package")
    if about.pop("sha256", None) != _digest(about, tensors):
        raise InputError(f"state: {path} is damaged (its content does not match its hash)")
    try:
        specs = tuple(None if one is None else AttentionSpec.from_dict(one) for one in about["specs"])
        layers: list[tuple[int, dict[str, Tensor]]] = [(int(length), {}) for length in about["lengths"]]
        for name, x in tensors.items():
            number, _, rest = name.partition(".")
            layers[int(number)][1][rest] = x
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InputError(f"state: {path} is damaged ({error})") from error
    return Saved(specs, layers)


def _digest(about: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """A hash of everything that a file holds."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, x in sorted(tensors.items()):
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        # A tensor of one element may have any stride, contiguous or not; this copy has stride 1.
        plain = x.cpu().flatten().clone(memory_format=torch.contiguous_format)
        digest.update(plain.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _about(file: Any) -> dict[str, Any]:
    """What the file says about itself; empty where it is not one of ours."""
    try:
        about = json.loads((file.metadata() or {}).get(FORMAT, "null"))
    except (ValueError, RecursionError):
        return {}
    return about if isinstance(about, dict) else {}


def check_target(path: Path, what: str) -> None:
    """Refuse a place that cannot be written, and a file there that is not one of ours."""
    check_output(path, folder=False, what=what)
    if not path.exists():
        return
    try:
        with safe_open(path, framework="pt") as file:
            known = bool(_about(file))
    except (SafetensorError, OSError):
        known = False
    if not known:
        raise InputError(f"{what}: {path} exists and is not a saved state; choose another name, or remove it")


def check_specs(what: str, given: Specs, expected: Specs) -> None:
    """Refuse a state that was made with other specs, and say where they differ."""
    if given == expected:
        return
    if len(given) != len(expected):
        raise InputError(f"{what}: a state of {len(given)} layers, the model has {len(expected)}")
    number = next(i for i, pair in enumerate(zip(given, expected, strict=True)) if pair[0] != pair[1])
    a, b = given[number], expected[number]
    parts = "one of them is a Mamba-2 mixer" if a is None or b is None else f"they differ in: {', '.join(diff(a, b))}"
    raise InputError(f"{what}: the state of layer {number} belongs to another spec than the model's; {parts}")
