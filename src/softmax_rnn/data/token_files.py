"""Documents tokenised once: a flat array on disk that is mapped into memory, and where each document begins.

tokens    d₀ … eos d₁ … eos d₂ … eos        uint16, or uint32 for large vocabularies
offsets   0       ↑        ↑       ↑        document n is tokens[offsets[n] : offsets[n + 1]]

>>> import tempfile
>>> from softmax_rnn.data.tokenisers import byte_tokenizer
>>> folder = Path(tempfile.mkdtemp()) / "tokens"
>>> labelled = [("train", "hi"), ("test", "yo"), ("train", "!")]
>>> train = cached_tokens(folder, labelled, ("train", "test"), Encoder(byte_tokenizer()))["train"]
>>> train.tokens.tolist(), train.offsets.tolist()
([104, 105, 256, 33, 256], [0, 3, 5])
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from softmax_rnn.cached_folder import cached
from softmax_rnn.console import byte_progress
from softmax_rnn.data.encode import Encoder
from softmax_rnn.files import write_json

FORMAT = 2
"""Part of every cache key: a change of the files is a new number."""
_CHARACTERS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Tokens:
    """The tokens of one split of a text."""

    tokens: np.ndarray
    offsets: np.ndarray
    eos: int
    text_bytes: int
    """Bytes of the documents' text in UTF-8."""
    content_hash: str

    @property
    def documents(self) -> int:
        return len(self.offsets) - 1


def cached_tokens(
    folder: Path, labelled: Iterable[tuple[str, str]], names: Sequence[str], encoder: Encoder
) -> dict[str, Tokens]:
    """The tokens of each split from a folder, which is filled from (split, text) pairs if need be."""
    cached(folder, lambda made: _tokenise(made, labelled, names, encoder))
    return {name: _read(folder, name, encoder.eos) for name in names}


def _read(folder: Path, name: str, eos: int) -> Tokens:
    facts = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    path = folder / f"{name}.tokens.npy"
    # A plain view: slices of np.memmap itself are slow. No tokens at all cannot be mapped.
    tokens = np.load(path, mmap_mode="r" if facts["tokens"] else None, allow_pickle=False).view(np.ndarray)
    offsets = np.load(folder / f"{name}.offsets.npy", allow_pickle=False)
    return Tokens(tokens, offsets, eos, facts["text_bytes"], facts["content_hash"])


def _tokenise(folder: Path, labelled: Iterable[tuple[str, str]], names: Sequence[str], encoder: Encoder) -> None:
    sides = {name: _Side(folder, name, encoder.dtype) for name in names}
    with byte_progress("tokenising") as advance:
        for batch in _batches(labelled):
            texts = [text for _, text in batch]
            sizes = [len(text.encode()) for text in texts]
            for (name, _), tokens, size in zip(batch, encoder(texts), sizes, strict=True):
                sides[name].add(tokens, size)
            advance(sum(sizes))
    for side in sides.values():
        side.finish()


def _batches(labelled: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    batch, characters = [], 0
    for pair in labelled:
        batch.append(pair)
        characters += len(pair[1])
        if characters >= _CHARACTERS_AT_ONCE:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


class _Side:
    """Writes tokens as they come; the header of the file is written again when their number is known."""

    def __init__(self, folder: Path, name: str, dtype: type[np.unsignedinteger]):
        self._folder, self._name, self._dtype = folder, name, np.dtype(dtype)
        self._file = (folder / f"{name}.tokens.npy").open("wb")
        self._write_header(0)
        self._ends = [0]
        self._text_bytes = 0
        self._digest = hashlib.sha256(str(self._dtype).encode())

    def _write_header(self, count: int) -> None:
        # numpy leaves room in the header for a count that grows.
        self._file.seek(0)
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (count,)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def add(self, tokens: np.ndarray, text_bytes: int) -> None:
        self._file.write(tokens.tobytes())
        self._digest.update(tokens.tobytes())
        self._ends.append(self._ends[-1] + len(tokens))
        self._text_bytes += text_bytes

    def finish(self) -> None:
        self._write_header(self._ends[-1])
        self._file.close()
        offsets = np.array(self._ends, np.int64)
        np.save(self._folder / f"{self._name}.offsets.npy", offsets, allow_pickle=False)
        self._digest.update(offsets.tobytes())
        facts = {"tokens": self._ends[-1], "text_bytes": self._text_bytes, "content_hash": self._digest.hexdigest()}
        write_json(self._folder / f"{self._name}.json", facts)
