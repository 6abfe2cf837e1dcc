"""Files and hub datasets, read with the datasets library. No code of others is run.

    .txt                     a document a file
    .jsonl, .json, .parquet  a document a record, in the column ``text_column``

A folder stands for all its files, which must be of one kind; each may be compressed as .gz, parquet excepted.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "poem.txt"
>>> _ = path.write_text("Roses are red.", encoding="utf-8")
>>> records, _ = load_records(TextConfig(source=str(path)))
>>> list(read_texts(records, "text"))
['Roses are red.']
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softmax_rnn.data.config import TextConfig
from softmax_rnn.data.corpora import CORPORA
from softmax_rnn.data.tasks.table import TASKS
from softmax_rnn.errors import InputError, unknown_name

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

# The ending → the builder of the datasets library.
KINDS = {".txt": "text", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}
_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def load_records(config: TextConfig) -> tuple[Dataset | IterableDataset, str]:
    """The records of a source and a hash of what they are read from."""
    path = Path(config.source).expanduser()
    if path.exists():
        records, fingerprint = _local(path)
    elif _HUB_NAME.fullmatch(config.source) and _ending(path) not in KINDS:
        records, fingerprint = _hub(config)
    elif len(path.parts) == 1 and not path.suffix:
        raise unknown_name("source", config.source, [*CORPORA, *TASKS])
    else:
        raise InputError(f"source: no file or folder {config.source!r}")
    if records.column_names:
        _check_column(config.text_column, records.column_names)
    return records, fingerprint


def _check_column(column: str, names: Iterable[str]) -> None:
    if column not in names:
        raise unknown_name("text_column", column, names)


def read_texts(records: Iterable[Any], column: str) -> Iterator[str]:
    """The text of each record; none counts as empty."""
    reading = iter(records)
    with _silent("datasets.packaged_modules.json.json"):  # it tells of a broken file, and then raises
        while (record := _next(reading)) is not None:
            _check_column(column, record)
            text = record[column]
            if not isinstance(text, str | None):
                raise InputError(f"text_column: expected text in column {column!r}, got {type(text).__name__}")
            yield text or ""


def _next(reading: Iterator[Any]) -> Any:
    try:
        return next(reading, None)
    except UnicodeDecodeError as error:
        raise InputError(f"source: expected text in UTF-8, got {error.reason} at byte {error.start}") from error
    except (ValueError, OSError) as error:  # pyarrow's, the decoder's, the connection's
        raise InputError(f"source: a record cannot be read: {_reason(error)}") from error


@contextmanager
def _silent(logger: str) -> Iterator[None]:
    """Inside, a logger of somebody else is silent: what goes wrong is an error here."""
    found = logging.getLogger(logger)
    before = found.level
    found.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        found.setLevel(before)


def _local(path: Path) -> tuple[IterableDataset, str]:
    """Local files are read in place: the stream of the datasets library makes no copy of them."""
    from datasets import load_dataset

    files = _files(path)
    kinds = sorted({KINDS[_ending(file)] for file in files})
    if len(kinds) > 1:
        raise InputError(f"source: expected files of one kind in {path}, got {' and '.join(kinds)}")
    options: dict[str, Any] = {"sample_by": "document"} if kinds == ["text"] else {}
    names = [str(file) for file in files]
    try:
        fingerprint = _hash_of(path, files)
        records = load_dataset(kinds[0], data_files=names, split="train", streaming=True, **options)
    except Exception as error:  # every builder has errors of its own
        raise InputError(f"source: {path} cannot be read: {_reason(error)}") from error
    return records, fingerprint  # pyright: ignore[reportReturnType]


def _files(path: Path) -> list[Path]:
    """The file, or all files of the folder that are not hidden, in order; empty ones hold no document."""
    inside = sorted(path.rglob("*")) if path.is_dir() else [path]
    files = [file for file in inside if file.is_file() and not file.name.startswith(".")]
    for file in files:
        if _ending(file) not in KINDS:
            raise InputError(f"source: expected a file that ends in {', '.join(KINDS)}, got {file}")
    files = [file for file in files if file.stat().st_size]
    if not files:
        raise InputError(f"source: {path} holds no text")
    return files


def _ending(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix


def _hash_of(path: Path, files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            name = file.relative_to(path).as_posix() if path.is_dir() else ""
            digest.update(f"{name}\n{hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def _hub(config: TextConfig) -> tuple[Dataset | IterableDataset, str]:
    from datasets import load_dataset

    revision = _revision(config.source)
    try:
        with _silent("huggingface_hub"):  # it tells of every attempt to connect
            records = load_dataset(
                config.source, config.config, split=config.split, streaming=config.streaming, revision=revision
            )
    except Exception as error:  # connections, names, configurations, splits: each has errors of its own
        raise InputError(f"source: {config.source} cannot be loaded from the hub: {_reason(error)}") from error
    content = revision or getattr(records, "_fingerprint", "")
    fingerprint = "\n".join((config.source, config.config or "", config.split, content))
    return records, hashlib.sha256(fingerprint.encode()).hexdigest()  # pyright: ignore[reportReturnType]


def _revision(name: str) -> str | None:
    """The commit that the hub has now, so that a resumed run reads what it read before; None without a connection."""
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(name).sha
    except Exception:  # load_dataset says what is wrong, or finds a copy on the disk
        return None


def _reason(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
