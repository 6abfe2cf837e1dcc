"""A folder that is made once: whole or absent, also when two processes want it at the same time.

The maker works under another name, the SHA-256 of every file is written down, and the folder is renamed. All hashes
are checked whenever the folder is asked for; if one does not match, the folder is rebuilt, with a line that says
so.

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

from softmax_rnn.console import say
from softmax_rnn.errors import InputError, RunError
from softmax_rnn.files import file_hash, write_folder, write_json

_HASHES = "hashes.json"


def cached(folder: Path, make: Callable[[Path], object]) -> Path:
    """The folder, filled by ``make`` if it is not there; who comes second waits for the first."""
    from filelock import FileLock

    if _damage(folder) is None:  # without the lock: many processes check at once, and nothing need be writable
        return folder

    def make_with_hashes(unfinished: Path) -> None:
        make(unfinished)
        write_json(unfinished / _HASHES, {path.name: file_hash(path) for path in unfinished.iterdir()})

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder.with_name(f"{folder.name}.lock")).acquire()
    except OSError as error:
        raise InputError(
            f"cache: {folder.parent} cannot be written: {error.strerror}; set SOFTMAX_RNN_CACHE to another folder"
        ) from error
    with lock:
        damage = _damage(folder)
        if damage is None:
            return folder
        if folder.exists():
            say(f"cache: {folder} is damaged ({damage}); rebuilding it")
        for remains in folder.parent.glob(f".{folder.name}.*"):
            shutil.rmtree(remains, ignore_errors=True)
        try:
            return write_folder(folder, make_with_hashes)
        except OSError as error:
            raise RunError(
                f"cache: {folder} cannot be written: {error.strerror or error};"
                " set SOFTMAX_RNN_CACHE to a folder on another disk"
            ) from error


def _damage(folder: Path) -> str | None:
    """What is wrong with a folder; None where every file is as it was made."""
    try:
        hashes = json.loads((folder / _HASHES).read_text(encoding="utf-8"))
        names = {path.name for path in folder.iterdir()} - {_HASHES}
        if not names or not isinstance(hashes, dict) or names != set(hashes):
            return f"its files are not those of {_HASHES}"
        return next(
            (f"{name} does not match its hash" for name in names if file_hash(folder / name) != hashes[name]), None
        )
    except (OSError, ValueError, RecursionError):
        return f"{_HASHES} cannot be read"


def key(**facts: Any) -> str:
    """A name for what these facts determine.

    >>> key(a=1, b="x") == key(b="x", a=1)
    True
    """
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
