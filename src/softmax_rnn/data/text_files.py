"""Local files as records: what is read, in which order, and which line of which file cannot be.

    .txt                     a document per file; a file that is alone is cut into documents
    .jsonl, .json, .parquet  a document per record, in the column ``text_column``

A folder stands for all its files, which must be of one kind; each may be compressed as .gz, parquet excepted.

>>> [len(piece) for piece in cut(["A paragraph of some words.\\n\\n", "A second one, just as long.\\n"])]
[28, 28]
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from softmax_rnn.errors import InputError, first_line, unknown_name

Part = Callable[[int], Iterator[dict[str, Any]]]
"""From a number on, the records of a part of a source."""

LONGEST, SHORTEST, PIECES = 4000, 16, 40
"""A text that is cut has documents of SHORTEST to LONGEST characters, or up to twice that: about PIECES of them where
it is short."""
_BORDERS = [re.compile(pattern) for pattern in (r"\n[ \t]*\n\s*", r"\n", r"[ \t]+")]
_CHUNK = 1 << 20


def files_of(path: Path) -> list[Path]:
    """The file, or all files of the folder that are not hidden, in order; empty ones hold no document."""
    inside = sorted(path.rglob("*")) if path.is_dir() else [path]
    files = [file for file in inside if file.is_file() and not file.name.startswith(".")]
    for file in files:
        if ending(file) not in READERS:
            raise InputError(f"source: expected a file that ends in {', '.join(READERS)}, got {file}")
    files = [file for file in files if file.stat().st_size]
    if not files:
        raise InputError(f"source: {path} holds no text")
    kinds = sorted({READERS[ending(file)].__name__.strip("_") for file in files})
    if len(kinds) > 1:
        raise InputError(f"source: expected files of one kind in {path}, got {' and '.join(kinds)}")
    return files


def ending(path: Path) -> str:
    """How the name ends, compression aside."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix


def hash_of(path: Path, files: list[Path]) -> str:
    """SHA-256 of all names and contents."""
    digest = hashlib.sha256()
    for file in files:
        with _reading(file), file.open("rb") as content:
            name = file.relative_to(path).as_posix() if path.is_dir() else ""
            digest.update(f"{name}\n{hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def parts_of(files: list[Path], column: str) -> list[Part]:
    """A part for each file."""
    if len(files) == 1 and ending(files[0]) == ".txt":
        return [partial(_pieces, files[0], column)]
    return [partial(READERS[ending(file)], file, column) for file in files]


def _text(path: Path, column: str, skip: int) -> Iterator[dict[str, Any]]:
    if not skip:
        with _reading(path), _opened(path) as file:
            text = "".join(_decoded(file))
        yield {column: text}


def _pieces(path: Path, column: str, skip: int) -> Iterator[dict[str, Any]]:
    with _reading(path), _opened(path) as file:
        for piece in islice(cut(_decoded(file)), skip, None):
            yield {column: piece}


def cut(chunks: Iterable[str]) -> Iterator[str]:
    """A text in pieces that joined are the text: cut at blank lines, or else at line ends, at spaces, anywhere."""
    chunks = iter(chunks)
    text = ""
    while len(text) < LONGEST * PIECES and (more := next(chunks, None)) is not None:
        text += more
    least = min(LONGEST, max(SHORTEST, len(text) // PIECES))
    for more in chain([""], chunks):
        text, begin = text + more, 0
        while len(text) - begin >= 2 * least:
            end = _border(text, begin + least, begin + 2 * least)
            yield text[begin:end]
            begin = end
        text = text[begin:]
    if text:
        yield text


def _border(text: str, start: int, end: int) -> int:
    matches = (border.search(text, start, end) for border in _BORDERS)
    return next((one.end() for one in matches if one is not None), end)


def _json(path: Path, column: str, skip: int) -> Iterator[dict[str, Any]]:
    with _reading(path), _opened(path) as file:
        for where, line in islice(_json_values(file, may_be_one=ending(path) == ".json"), skip, None):
            record = _parsed(line, where) if isinstance(line, bytes) else line
            if not isinstance(record, dict):
                raise InputError(f"expected a record in {where}, got a {type(record).__name__}")
            if column not in record:
                raise unknown_name("text_column", column, record)
            yield record


def _json_values(file: IO[bytes], *, may_be_one: bool) -> Iterator[tuple[str, Any]]:
    """The lines that are not blank, yet to be parsed, or the values of a file that is one value over many lines."""
    lines = ((f"line {number}", line) for number, line in enumerate(file, start=1) if line.strip())
    first = next(lines, ("line 1", b""))
    if may_be_one and _is_part(first[1]):
        whole = _parsed(first[1] + file.read(), "it")
        values = whole if isinstance(whole, list) else [whole]
        return ((f"record {number}", value) for number, value in enumerate(values, start=1))
    return chain([first], lines)


def _is_part(line: bytes) -> bool:
    """Whether a first line is the beginning of one JSON value, and not a record by itself."""
    try:
        return not isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return True


def _parsed(line: bytes, where: str) -> Any:
    try:
        return json.loads(line)
    except RecursionError:
        raise InputError(f"{where} is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not text in UTF-8: {error.reason} at its byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{where} is not valid JSON: {error.msg} at character {error.pos + 1}") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise InputError(f"{where} cannot be read: {error}") from None


def _parquet(path: Path, column: str, skip: int) -> Iterator[dict[str, Any]]:
    from pyarrow.parquet import ParquetFile

    with _reading(path), ParquetFile(path) as file:
        if column not in file.schema_arrow.names:
            raise unknown_name("text_column", column, file.schema_arrow.names)
        batches = file.iter_batches(columns=[column])
        yield from islice((record for batch in batches for record in batch.to_pylist()), skip, None)


READERS = {".txt": _text, ".jsonl": _json, ".json": _json, ".parquet": _parquet}
"""The ending of a file → its records."""


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Inside, whatever is wrong with the file is an error that names it."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"source: {path}: {error}") from None
    except EOFError:
        raise InputError(f"source: {path} is truncated: its compressed data ends early") from None
    except (OSError, ValueError, zlib.error) as error:  # gzip's and pyarrow's among them
        reason = getattr(error, "strerror", None) or first_line(error)
        raise InputError(f"source: {path} cannot be read: {reason}") from error


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # pyright: ignore[reportReturnType]


def _decoded(file: IO[bytes]) -> Iterator[str]:
    """The text in chunks, with every line end as \\n."""
    decoder, newlines, done = codecs.getincrementaldecoder("utf-8")(), io.IncrementalNewlineDecoder(None, True), 0
    while chunk := file.read(_CHUNK):
        yield newlines.decode(_decode(decoder, chunk, done))
        done += len(chunk)
    yield newlines.decode(_decode(decoder, b"", done, final=True), final=True)


def _decode(decoder: codecs.IncrementalDecoder, chunk: bytes, done: int, *, final: bool = False) -> str:
    held = len(decoder.getstate()[0])
    try:
        return decoder.decode(chunk, final)
    except UnicodeDecodeError as error:
        place = done - held + error.start
        raise InputError(f"expected text in UTF-8, got {error.reason} at byte {place}") from None
