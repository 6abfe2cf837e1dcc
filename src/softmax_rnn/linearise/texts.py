"""The texts of a conversion: training rows of all texts joined, held-out rows of each text separately."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from softmax_rnn.data.rows import LoadedData, Row, Rows, RowStream
from softmax_rnn.data.text import load_text
from softmax_rnn.errors import InputError
from softmax_rnn.linearise.settings import LineariseConfig
from softmax_rnn.train.batches import Order


class JoinedRows:
    """Several tables of rows as one."""

    def __init__(self, tables: Sequence[Rows]) -> None:
        self.tables = tables

    @property
    def content_hash(self) -> str:
        """The hash of all tables in order."""
        return hashlib.sha256(" ".join(one.content_hash for one in self.tables).encode()).hexdigest()

    def __len__(self) -> int:
        return sum(len(one) for one in self.tables)

    def __getitem__(self, index: int, /) -> Row:
        for one in self.tables:
            if index < len(one):
                return one[index]
            index -= len(one)
        raise IndexError(index)


@dataclass(frozen=True)
class Texts:
    """The rows that the stages read."""

    train: Rows | RowStream
    held_out: dict[str, list[Row]]
    facts: list[dict[str, Any]]

    def first_rows(self, count: int, seed: int) -> list[Row]:
        """The first ``count`` training rows in a fixed order; of a stream, the next ones."""
        if isinstance(self.train, RowStream):
            return [next(self.train) for _ in range(count)]
        table = self.train
        return [table[int(i)] for i in Order(len(table), seed).take(0, min(count, len(table)))]


def load_texts(config: LineariseConfig, tokenizer: PreTrainedTokenizerBase, context: int) -> Texts:
    """All texts, as rows of ``context`` tokens."""
    if tokenizer.eos_token_id is None:
        raise InputError("tokenizer: the model's has no eos token, which must end each document")
    sources = (*config.data, *config.measure)
    loaded = [load_text(one, context=context, seed=config.seed, tokenizer=tokenizer) for one in sources]
    tables: list[Any] = [one.train for one in loaded[: len(config.data)]]
    if len(tables) > 1 and any(isinstance(one, RowStream) for one in tables):
        raise InputError("data: a stream cannot be joined with other texts; use it alone, or turn streaming off")
    train = tables[0] if len(tables) == 1 else JoinedRows(tables)
    names = text_names([one.source for one in sources])
    most = max(1, config.eval_tokens // context)
    held_out = {name: _some(one, most) for name, one in zip(names, loaded, strict=True)}
    return Texts(train, held_out, [one.facts | {"text": name} for name, one in zip(names, loaded, strict=True)])


def _some(data: LoadedData, most: int) -> list[Row]:
    """The first held-out rows, all of them if there are fewer."""
    return [data.test[i] for i in range(min(most, len(data.test)))]


def text_names(sources: Sequence[str]) -> list[str]:
    """Display names of texts: a file's name without its folder, numbered where two are the same.

    >>> text_names(["kjv", "stdlib", "kjv"])
    ['kjv', 'stdlib', 'kjv (2)']
    """
    names: list[str] = []
    for source in sources:
        name = Path(source).name if Path(source).exists() else source
        count = sum(one == name or one.startswith(f"{name} (") for one in names)
        names.append(f"{name} ({count + 1})" if count else name)
    return names
