"""Files and folders: written under a temporary name, then renamed, so that a file is whole or absent; the cache."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from softmax_rnn.errors import InputError


def write_whole(path: Path, write: Callable[[Path], object]) -> Path:
    """Let ``write`` make the file under a temporary name with the same ending, then rename it."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    with _named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    return path


def write_folder(path: Path, write: Callable[[Path], object]) -> Path:
    """Let ``write`` fill a folder under a temporary name, then rename it; what was there before is replaced."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with _named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir()
            write(temporary)
            shutil.rmtree(path, ignore_errors=True)
            temporary.rename(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return path


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Inside, an error of the system names the path: a disk that is full does not say which file it is full for."""
    try:
        yield
    except Exception as error:
        failed = system_error(error)
        if failed is None or failed.errno is None:
            raise
        if failed is error and failed.filename and not Path(os.fsdecode(failed.filename)).name.startswith("."):
            raise
        raise OSError(failed.errno, failed.strerror, str(path)) from error


def system_error(error: Exception) -> OSError | None:
    """The error of the system behind this one; safetensors and tokenizers report theirs as text.

    >>> system_error(RuntimeError("I/O error: No space left on device (os error 28)"))
    OSError(28, 'No space left on device')
    """
    if isinstance(error, OSError):
        return error
    number = re.search(r"\(os error (\d+)\)", str(error))
    return None if number is None else OSError(int(number[1]), os.strerror(int(number[1])))


def file_hash(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str, errors: str = "strict") -> Path:
    """A text in UTF-8 with its line ends as they are; ``errors`` is that of :meth:`str.encode`."""
    return write_whole(path, lambda temporary: temporary.write_bytes(text.encode("utf-8", errors)))


def write_json(path: Path, value: Any, indent: int | None = 2) -> Path:
    """A value as JSON; numbers that JSON lacks (inf, nan) become null. Without indent it is small and quickly made."""
    return write_text(path, json.dumps(finite(value), indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """The value with None where a number is not finite."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_with(*keys: str) -> Callable[[Path], bool]:
    """A test whether a file is a JSON object with these keys, which is how a file of ours is recognised."""

    def test(path: Path) -> bool:
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(value, dict) and all(key in value for key in keys)

    return test


def folder_with(marker: str, *keys: str, writes: tuple[str, ...]) -> Callable[[Path], bool]:
    """A test whether results may go into a folder: nothing in it has their names, or its marker was written by us."""
    is_ours = json_with(*keys)
    return lambda folder: not any((folder / name).exists() for name in (marker, *writes)) or is_ours(folder / marker)


def cache_folder() -> Path:
    """Where tokenised texts are kept: ``$SOFTMAX_RNN_CACHE``, or a folder of the user's."""
    return expanded(Path(os.environ.get("SOFTMAX_RNN_CACHE") or "~/.cache/softmax-rnn"))


def expanded(path: Path) -> Path:
    """The path with the home folder in the place of ``~``."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise InputError(f"cache: {path} cannot be resolved: no home folder is known; set SOFTMAX_RNN_CACHE") from None
