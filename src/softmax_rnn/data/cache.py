"""A folder that is made once: whole or absent, also when two processes want it at the same time.

The maker works under another name, the sizes of all files are written down, and the folder is renamed. A folder whose
files are missing or cut off is made again.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp()) / "answer"
>>> def make(unfinished):
...     print("made")
...     (unfinished / "text").write_text("42")
>>> [(cached(folder, make) / "text").read_text() for _ in range(2)]
made
['42', '42']
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from softmax_rnn.errors import InputError
from softmax_rnn.files import write_json

_SIZES = "sizes.json"


def cached(folder: Path, make: Callable[[Path], object]) -> Path:
    """The folder, filled by ``make`` if it is not there; who comes second waits for the first."""
    from filelock import FileLock

    unfinished = folder.with_name(f"{folder.name}.part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_name(f"{folder.name}.lock")).acquire()
    except OSError as error:
        raise InputError(f"cache: {folder.parent} cannot be written: {error.strerror}") from error
    with lock:
        if not _is_whole(folder):
            for remains in (folder, unfinished):
                shutil.rmtree(remains, ignore_errors=True)
            unfinished.mkdir()
            make(unfinished)
            write_json(unfinished / _SIZES, {path.name: path.stat().st_size for path in unfinished.iterdir()})
            unfinished.rename(folder)
    return folder


def _is_whole(folder: Path) -> bool:
    try:
        sizes: dict[str, int] = json.loads((folder / _SIZES).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def key(**facts: Any) -> str:
    """A name for what these facts determine.

    >>> key(a=1, b="x") == key(b="x", a=1)
    True
    """
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
