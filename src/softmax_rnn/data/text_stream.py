"""Rows from a text that is read while training, without end, and resumable at every row.

    shards → documents → blocks of documents → rows in order → buffers of rows, each shuffled → rows

Everything random is drawn from (seed, number): the order of the shards from the number of the pass, the order within
a buffer from the number of the buffer. So the place in the stream is small: where the buffer began, and how many of
its rows are out. Going there reads the buffer again. All processes of a run read the same rows and take their share.

>>> import tempfile
>>> from softmax_rnn.data.text import load_text
>>> config = TextConfig(source="shakespeare", streaming=True, max_documents=50, cache=tempfile.mkdtemp())
>>> stream = load_text(config, context=64, seed=0).train
>>> place = stream.state_dict()
>>> first = next(stream)
>>> stream.load_state_dict(place)
>>> bool((next(stream)["input_ids"] == first["input_ids"]).all())
True
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from softmax_rnn.data.encode import Encoder
from softmax_rnn.data.layouts import packed_row, padded_row
from softmax_rnn.data.records import read_texts
from softmax_rnn.data.rows import Row
from softmax_rnn.data.split import in_test
from softmax_rnn.data.text_config import TextConfig
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from softmax_rnn.data.records import Records

_DOCUMENTS_AT_ONCE = 32
_MOST_SHARDS = 1024


class TextStream:
    """Endless shuffled rows of the training split of a stream."""

    def __init__(
        self,
        records: Records,
        content_hash: str,
        encoder: Encoder,
        config: TextConfig,
        fraction: float,
        *,
        context: int,
        seed: int,
    ):
        self.content_hash = content_hash
        self._seed, self._size = seed, config.shuffle_buffer
        documents = _Documents(records, config, fraction, seed)
        self._rows = _OrderedRows(documents, encoder, config.layout, context)
        self._number = 0
        self._position = 0
        self._begin = self._rows.state_dict()
        self._buffer: list[Row] = []

    def __iter__(self) -> TextStream:
        return self

    def __next__(self) -> Row:
        if not self._buffer:
            self._fill()
        row = self._buffer[self._position]
        self._position += 1
        if self._position == self._size:
            self._number, self._position, self._buffer = self._number + 1, 0, []
            self._begin = self._rows.state_dict()
        return row

    def _fill(self) -> None:
        rows = list(islice(self._rows, self._size))
        order = np.random.default_rng([self._seed, self._number]).permutation(self._size)
        self._buffer = [rows[index] for index in order]

    def state_dict(self) -> dict[str, Any]:
        """The place in the stream, in values that JSON has."""
        place = {"number": self._number, "position": self._position, "begin": self._begin}
        return {"content_hash": self.content_hash, **place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a place in this stream; a place in another is refused."""
        if state["content_hash"] != self.content_hash:
            raise InputError("state: this position belongs to a stream with another content, layout, context or seed")
        self._number, self._position, self._begin = state["number"], state["position"], state["begin"]
        self._rows.load_state_dict(self._begin)
        self._buffer = []


class _OrderedRows:
    """Rows in the order of the documents. The place is the beginning of a block of documents and a row in it."""

    def __init__(self, documents: _Documents, encoder: Encoder, layout: str, context: int):
        self._documents, self._encoder, self._context = documents, encoder, context
        self._make = self._packed if layout == "packed" else self._padded
        self._rest = np.array([], encoder.dtype)
        self._starts = np.array([], np.int64)
        self._forget_block()

    def _forget_block(self) -> None:
        self._block: list[Row] = []
        self._row = 0
        self._begin = {
            "documents": self._documents.state_dict(),
            "rest": self._rest.tolist(),
            "starts": self._starts.tolist(),
        }

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        while self._row == len(self._block):
            self._forget_block()
            self._read_block()
        row = self._block[self._row]
        self._row += 1
        return row

    def _read_block(self) -> None:
        self._block = self._make(self._encoder(list(islice(self._documents, _DOCUMENTS_AT_ONCE))))

    def _padded(self, documents: list[np.ndarray]) -> list[Row]:
        return [padded_row(tokens, self._context, self._encoder.eos) for tokens in documents]

    def _packed(self, documents: list[np.ndarray]) -> list[Row]:
        """All rows that are full and whose last target is known; what is left begins the next block."""
        ends = len(self._rest) + np.cumsum([len(tokens) for tokens in documents])
        starts = np.concatenate([self._starts, ends])
        tokens = np.concatenate([self._rest, *documents])
        count = (len(tokens) - 1) // self._context
        rows = []
        for begin in range(0, count * self._context, self._context):
            first, last = np.searchsorted(starts, (begin + 1, begin + self._context + 1))
            piece = tokens[begin : begin + self._context + 1]
            rows.append(packed_row(piece, starts[first:last] - begin, self._context, self._encoder.eos))
        done = count * self._context
        self._rest, self._starts = tokens[done:], starts[starts > done] - done
        return rows

    def state_dict(self) -> dict[str, Any]:
        return {**self._begin, "row": self._row}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._documents.load_state_dict(state["documents"])
        self._rest = np.array(state["rest"], self._encoder.dtype)
        self._starts = np.array(state["starts"], np.int64)
        self._forget_block()
        if state["row"]:
            self._read_block()
            self._row = state["row"]


class _Documents:
    """The train documents of pass after pass, shard by shard."""

    def __init__(self, records: Records, config: TextConfig, fraction: float, seed: int):
        self._records, self._column, self._fraction, self._seed = records, config.text_column, fraction, seed
        self._most = config.max_documents
        # Opening a shard takes time that grows with the number of files, so many files share one.
        self._shards = min(records.num_shards, _MOST_SHARDS)
        self._go_to(epoch=0, shard=0, read=0, any_train=False)

    def _go_to(
        self, *, epoch: int, shard: int, read: int, any_train: bool, place: dict[str, Any] | None = None
    ) -> None:
        self._epoch, self._shard, self._read, self._any_train = epoch, shard, read, any_train
        self._open = self._records.shard(num_shards=self._shards, index=self._order()[shard])
        if place is not None:
            self._open.load_state_dict(place)
        self._texts = read_texts(self._open, self._column)

    def _order(self) -> list[int]:
        """The shards of this pass. Where only the first documents count, they must be the same in each pass."""
        if self._most is not None:
            return list(range(self._shards))
        return np.random.default_rng([self._seed, self._epoch]).permutation(self._shards).tolist()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while True:
            text = next(self._texts, None) if self._read != self._most else None
            if text is None:
                self._next_shard()
            elif text:
                self._read += 1
                if not in_test(text, self._fraction):
                    self._any_train = True
                    return text

    def _next_shard(self) -> None:
        if self._read != self._most and self._shard + 1 < self._shards:
            self._go_to(epoch=self._epoch, shard=self._shard + 1, read=self._read, any_train=self._any_train)
        elif self._any_train:
            self._go_to(epoch=self._epoch + 1, shard=0, read=0, any_train=False)
        else:
            raise InputError("source: a whole pass over the stream found no document for training")

    def state_dict(self) -> dict[str, Any]:
        place = {"epoch": self._epoch, "shard": self._shard, "read": self._read, "any_train": self._any_train}
        return {**place, "place": self._open.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._go_to(**state)
