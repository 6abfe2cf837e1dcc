"""Writing results: to a temporary name, then renamed, so that a file is whole or absent."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from softmax_rnn.errors import InputError


def write_whole(path: Path, write: Callable[[Path], object]) -> Path:
    """Let ``write`` make the file under a temporary name with the same ending, then give it its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def write_folder(path: Path, write: Callable[[Path], object]) -> Path:
    """Let ``write`` fill a folder under a temporary name, then give it its own; what stood there before is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        write(temporary)
        shutil.rmtree(path, ignore_errors=True)
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return path


def write_json(path: Path, value: Any, indent: int | None = 2) -> Path:
    """A value as JSON; numbers that JSON lacks (inf, nan) become null. Without indent it is small and quickly made."""
    text = json.dumps(finite(value), indent=indent, ensure_ascii=False, allow_nan=False)
    return write_whole(path, lambda temporary: temporary.write_text(text + "\n", encoding="utf-8"))


def finite(value: Any) -> Any:
    """The value with None where a number is not finite."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def parse_json(text: str, what: str) -> Any:
    """The values of JSON text; ``what`` names the argument in errors. A name that stands twice is refused.

    >>> parse_json('{"a": 1, "a": 2}', "spec")
    Traceback (most recent call last):
    softmax_rnn.errors.InputError: spec: 'a' stands twice in one object
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"{what}: {twice!r} stands twice in one object")
        return values

    try:
        return json.loads(text, object_pairs_hook=once)
    except InputError:
        raise
    except RecursionError:
        raise InputError(f"{what}: expected JSON, got one that is nested too deep") from None
    except ValueError as error:
        raise InputError(f"{what}: expected JSON, got {text[:40]!r}: {' '.join(str(error).split())}") from error
