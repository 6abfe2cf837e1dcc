"""All documents of a source, in order: of an embedded corpus, of files or of the hub.

>>> texts = open_texts(TextConfig(source="stdlib", max_documents=2))
>>> len(list(texts)), len(list(texts))
(2, 2)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from softmax_rnn.data.config import TextConfig
from softmax_rnn.data.corpora import CORPORA, content_hash, documents
from softmax_rnn.data.records import load_records, read_texts

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
    if config.source in CORPORA:
        found = list(documents(config.source))
        return Texts(content_hash(found), lambda: (document.text for document in found), config.max_documents)
    records, fingerprint = load_records(config)
    return texts_of(records, fingerprint, config)


def texts_of(records: Dataset | IterableDataset, fingerprint: str, config: TextConfig) -> Texts:
    """The texts of records that are open already."""
    return Texts(fingerprint, lambda: read_texts(records, config.text_column), config.max_documents)


def open_stream(config: TextConfig) -> tuple[IterableDataset, str]:
    """The records of a source as a stream in shards, and their hash. An embedded corpus can be streamed like files."""
    if config.source in CORPORA:
        from datasets import Dataset

        found = list(documents(config.source))
        table = Dataset.from_dict({config.text_column: [document.text for document in found]})
        return table.to_iterable_dataset(num_shards=min(len(found), _SHARDS_OF_A_CORPUS)), content_hash(found)
    return load_records(config)  # pyright: ignore[reportReturnType]
