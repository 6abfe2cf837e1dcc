"""Where documents are read: embedded corpora, local files, or the hub with the datasets library. No code of others is
run.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp()) / "poems.jsonl"
>>> _ = path.write_text('{"text": "Roses are red."}', encoding="utf-8")
>>> records, _ = load_records(TextConfig(source=str(path)))
>>> list(read_texts(records, "text"))
['Roses are red.']
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from softmax_rnn.data.corpora import CORPORA
from softmax_rnn.data.tasks.table import TASKS
from softmax_rnn.data.text_config import TextConfig
from softmax_rnn.data.text_files import READERS, Part, ending, files_of, hash_of, parts_of
from softmax_rnn.errors import InputError, first_line, root_cause, unknown_name

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

_HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


class Records:
    """The records of parts, one part after another; as much of datasets' `IterableDataset` as is needed here."""

    def __init__(self, parts: Sequence[Part]):
        self._parts = parts
        self._begin = (0, 0)
        self._part, self._record = self._begin

    @property
    def num_shards(self) -> int:
        """How many shards it can be cut into."""
        return len(self._parts)

    def shard(self, num_shards: int, index: int) -> Records:
        """The parts of one of so many shards."""
        numbers = np.array_split(np.arange(len(self._parts)), num_shards)[index]
        return Records([self._parts[number] for number in numbers])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        (first, skip), self._begin = self._begin, (0, 0)
        for part in range(first, len(self._parts)):
            self._part, self._record = part, skip if part == first else 0
            for record in self._parts[part](self._record):
                self._record += 1
                yield record

    def state_dict(self) -> dict[str, int]:
        """The place after the last record."""
        return {"part": self._part, "record": self._record}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Let the next iteration begin at a place."""
        self._begin = self._part, self._record = state["part"], state["record"]


def source_kind(source: str) -> Literal["corpus", "path", "hub"]:
    """Where a text comes from; what is none of these is refused.

    >>> source_kind("stdlib"), source_kind("owner/name")
    ('corpus', 'hub')
    """
    path = Path(source).expanduser()
    if source in CORPORA:
        return "corpus"
    if _exists(path):
        return "path"
    if _HUB_NAME.fullmatch(source) and ending(path) not in READERS:
        return "hub"
    if len(path.parts) == 1 and not path.suffix:
        raise unknown_name("source", source, [*CORPORA, *TASKS])
    raise InputError(f"source: there is no file or folder {source!r}")


def load_records(config: TextConfig) -> tuple[Records | Dataset | IterableDataset, str]:
    """The records of files or of the hub, and a hash of what they are read from."""
    if source_kind(config.source) == "hub":
        return _hub(config)
    path = Path(config.source).expanduser()
    files = files_of(path)
    return Records(parts_of(files, config.text_column)), hash_of(path, files)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise InputError(f"source: {path} cannot be read: {error.strerror}") from error


def read_texts(records: Iterable[Any], column: str) -> Iterator[str]:
    """The text of each record; none counts as empty."""
    reading = iter(records)
    while (record := _next(reading)) is not None:
        _check_column(column, record)
        text = record[column]
        if not isinstance(text, str | None):
            raise InputError(f"text_column: expected text in column {column!r}, got {type(text).__name__}")
        yield text or ""


def _check_column(column: str, names: Iterable[str]) -> None:
    if column not in names:
        raise unknown_name("text_column", column, names)


def _next(reading: Iterator[Any]) -> Any:
    try:
        return next(reading, None)
    except InputError:
        raise
    except (ValueError, OSError, EOFError) as error:  # the datasets library's, the connection's
        raise InputError(f"source: a record cannot be read: {first_line(root_cause(error))}") from error


def _hub(config: TextConfig) -> tuple[Dataset | IterableDataset, str]:
    from datasets import load_dataset

    revision = _revision(config.source)
    try:
        with _silent("huggingface_hub"):  # it logs every attempt to connect
            records: Any = load_dataset(
                config.source, config.config, split=config.split, streaming=config.streaming, revision=revision
            )
    except Exception as error:  # connections, names, configurations, splits: each has its own errors
        raise InputError(
            f"source: {config.source} cannot be loaded from the hub: {first_line(root_cause(error))}"
        ) from error
    if records.column_names:
        _check_column(config.text_column, records.column_names)
    content = revision or getattr(records, "_fingerprint", "")
    fingerprint = "\n".join((config.source, config.config or "", config.split, content))
    return records, hashlib.sha256(fingerprint.encode()).hexdigest()


def _revision(name: str) -> str | None:
    """The commit that the hub has now, so that a resumed run reads what it read before; None without a connection."""
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(name).sha
    except Exception:  # load_dataset says what is wrong, or finds a copy on the disk
        return None


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Inside, a logger of another library is silent: what goes wrong is an error here."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
