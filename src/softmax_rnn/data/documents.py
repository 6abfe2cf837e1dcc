"""All documents of a source, in order: of an embedded corpus, of files or of the hub.

>>> texts = open_texts(TextConfig(source="stdlib", max_documents=2))
>>> len(list(texts)), len(list(texts))
(2, 2)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from softmax_rnn.data.corpora import CORPORA, Document, content_hash, documents
from softmax_rnn.data.records import Records, load_records, read_texts
from softmax_rnn.data.text_config import TextConfig

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

_SHARDS_OF_A_CORPUS = 16


@dataclass(frozen=True)
class Texts:
    """The texts of a source, which can be read again; empty ones are left out."""

    content_hash: str
    read: Callable[[], Iterator[str]]
    most: int | None

    def __iter__(self) -> Iterator[str]:
        return islice((text for text in self.read() if text), self.most)


def open_texts(config: TextConfig) -> Texts:
    """The texts that a configuration names."""
    return texts_of(*open_records(config), config)


def texts_of(records: Records | Dataset | IterableDataset, fingerprint: str, config: TextConfig) -> Texts:
    """The texts of records that are open already."""
    return Texts(fingerprint, lambda: read_texts(records, config.text_column), config.max_documents)


def open_records(config: TextConfig) -> tuple[Records | Dataset | IterableDataset, str]:
    """The records of a source and their hash; those of an embedded corpus can be streamed in shards, like files."""
    if config.source not in CORPORA:
        return load_records(config)
    every = list(documents(config.source))
    numbers = np.array_split(np.arange(len(every)), min(len(every), _SHARDS_OF_A_CORPUS))
    parts = [partial(_part, [every[number] for number in some], config.text_column) for some in numbers]
    return Records(parts), content_hash(every)


def _part(some: list[Document], column: str, skip: int) -> Iterator[dict[str, Any]]:
    return ({column: document.text} for document in some[skip:])
