"""What every task has: settings that are checked, and rows that follow from a seed.

A task draws blocks of 1024 rows, each from its own random stream. So row i depends on the settings, the split, the
seed and i, not on how many rows are asked for.

>>> from softmax_rnn.data.tasks.induction import Induction
>>> task = Induction(length=8, train_examples=100, test_examples=10)
>>> rows = task.rows("test", seed=0)
>>> len(rows), rows[3]["targets"].tolist()[:-1] == [IGNORED] * 7
(10, True)
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from pydantic import BaseModel, Field

from softmax_rnn.data.rows import IGNORED, Row
from softmax_rnn.data.tasks.draws import stream
from softmax_rnn.errors import InputError, unknown_name

Side = Literal["train", "test"]

BLOCK = 1024
"""Rows that are drawn at once."""


class Task(BaseModel, frozen=True, extra="forbid"):
    """A distribution of rows; a subclass adds its settings, checks them, and says how rows are drawn."""

    name: str
    vocab_size: int
    """Tokens are 0 … vocab_size − 1."""
    length: int
    """Tokens per row."""
    train_examples: int = Field(default=100_000, ge=1)
    test_examples: int = Field(default=3_000, ge=1)

    @property
    def context(self) -> int:
        """The length of the rows."""
        return self.length

    @property
    @abstractmethod
    def counted_per_row(self) -> int:
        """How many targets of a row are counted."""

    @property
    @abstractmethod
    def chance_accuracy(self) -> float:
        """The expected accuracy of the best guess that sees nothing of the row but the position."""

    @abstractmethod
    def draw(self, generator: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets, int64[rows, length] each."""

    def rows(self, side: Side, seed: int) -> TaskRows:
        """The rows of one split. Train and test share no random numbers."""
        if side not in get_args(Side):
            raise unknown_name("side", side, get_args(Side))
        if not isinstance(seed, int) or seed < 0:
            raise InputError(f"seed: expected a whole number of 0 or more, got {seed!r}")
        return TaskRows(self, side, seed)


class TaskRows:
    """The rows of one split of a task, as `Rows`, kept in the smallest integers that hold the vocabulary."""

    def __init__(self, task: Task, side: Side, seed: int) -> None:
        self.task, self.side, self.seed = task, side, seed
        count = task.train_examples if side == "train" else task.test_examples
        small = next(
            kind for kind in (np.int8, np.int16, np.int32, np.int64) if task.vocab_size - 1 <= np.iinfo(kind).max
        )
        self.inputs = np.empty((count, task.length), small)
        self.targets = np.empty((count, task.length), small)
        for start in range(0, count, BLOCK):
            inputs, targets = task.draw(stream(task.name, side, seed, start // BLOCK), BLOCK)
            self.inputs[start : start + BLOCK] = inputs[: count - start]
            self.targets[start : start + BLOCK] = targets[: count - start]
        self.inputs.flags.writeable = self.targets.flags.writeable = False

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int, /) -> Row:
        return {
            "input_ids": self.inputs[index].astype(np.int64),
            "targets": self.targets[index].astype(np.int64),
        }

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over the shape and all tokens and targets as little-endian int64."""
        digest = hashlib.sha256(str(self.inputs.shape).encode())
        for table in (self.inputs, self.targets):
            for start in range(0, len(table), BLOCK):
                digest.update(table[start : start + BLOCK].astype("<i8").tobytes())
        return digest.hexdigest()

    def facts(self) -> dict[str, Any]:
        """What a record says of these rows, in values that JSON has."""
        return {
            "task": self.task.name,
            "settings": self.task.model_dump(mode="json", exclude={"name"}),
            "side": self.side,
            "seed": self.seed,
            "examples": len(self),
            "context": self.task.context,
            "counted_per_row": self.task.counted_per_row,
            "chance_accuracy": self.task.chance_accuracy,
            "content_hash": self.content_hash,
        }


def blank_targets(rows: int, length: int) -> np.ndarray:
    """Targets of which none is counted yet."""
    return np.full((rows, length), IGNORED, np.int64)
