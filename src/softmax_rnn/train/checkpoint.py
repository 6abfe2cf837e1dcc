"""Checkpoints: complete or absent. A folder ``step-000000400`` appears by one rename, when all its files are on disk.

``manifest.json`` names every file with its size and SHA-256; a checkpoint that does not match it is skipped with a
message, and the one before it is taken.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> _ = write_checkpoint(folder, 4, {"note.json": lambda path: path.write_text("{}")})
>>> latest = latest_checkpoint(folder)
>>> latest.step, latest.path.name
(4, 'step-000000004')
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from softmax_rnn.errors import InputError
from softmax_rnn.files import file_hash, write_folder

MANIFEST = "manifest.json"
FORMAT = 2
"""The version of what a checkpoint holds; others are refused."""
_PREFIX = "step-"
# A dot, the name, the process, the ending: how files and folders are called while they are written.
_TEMPORARY = re.compile(r"\..+\.\d+(\.\w+)?")
Writer = Callable[[Path], object]


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    step: int
    path: Path


def write_checkpoint(folder: Path, step: int, files: Mapping[str, Writer], keep: int = 2) -> Checkpoint:
    """Write all files and rename; then remove all but the newest ``keep``. On any error nothing is left behind."""

    def write_all(unfinished: Path) -> None:
        manifest = {}
        for name, write in files.items():
            write(unfinished / name)
            _to_disk(unfinished / name)
            manifest[name] = {"bytes": (unfinished / name).stat().st_size, "sha256": file_hash(unfinished / name)}
        content = json.dumps({"format": FORMAT, "step": step, "files": manifest}, indent=1)
        (unfinished / MANIFEST).write_text(content, encoding="utf-8")
        _to_disk(unfinished / MANIFEST)
        _to_disk(unfinished)

    # What is already there was damaged, or this step would not have been repeated.
    path = write_folder(folder / f"{_PREFIX}{step:09d}", write_all)
    _to_disk(folder)
    for old in _candidates(folder)[keep:]:
        shutil.rmtree(old, ignore_errors=True)
    return Checkpoint(step, path)


def latest_checkpoint(folder: Path, report: Callable[[str], None] = lambda message: None) -> Checkpoint | None:
    """The newest checkpoint that is whole; ``report`` is called for each that is not."""
    for path in _candidates(folder):
        problem = damage(path)
        if problem is None:
            _check_format(path)
            return Checkpoint(int(path.name.removeprefix(_PREFIX)), path)
        report(f"checkpoint {path} is damaged ({problem}) and is skipped")
    return None


def _check_format(path: Path) -> None:
    version = json.loads((path / MANIFEST).read_text(encoding="utf-8")).get("format", 1)
    if version != FORMAT:
        raise InputError(
            f"output: the checkpoint {path} was written by another version of softmax-rnn"
            f" (format {version}, expected {FORMAT}); finish the run with that version or choose another folder"
        )


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process was writing; to be called by the only process that writes here."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if not _TEMPORARY.fullmatch(path.name):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint; None when it is whole."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        files = {str(name): (int(entry["bytes"]), str(entry["sha256"])) for name, entry in manifest["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return f"{MANIFEST} cannot be read"
    for name, (size, digest) in files.items():
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size} bytes, not {size}"
        if file_hash(file) != digest:
            return f"the content of {name} has changed"
    return None


def _candidates(folder: Path) -> list[Path]:
    """Folders named like a checkpoint, the newest first."""
    if not folder.is_dir():
        return []
    named = [path for path in folder.iterdir() if path.name.removeprefix(_PREFIX).isdigit()]
    return sorted((path for path in named if path.name.startswith(_PREFIX)), reverse=True)


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
