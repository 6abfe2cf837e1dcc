"""What training reads: rows of tokens, by number (`Rows`) or without end (`RowStream`).

A row is a dictionary of arrays of one length T:

    input_ids[t]        the token at position t
    targets[t]          the token to predict from input_ids[0..t]; `IGNORED` where nothing is to be predicted
    segment_ids[t]      packed rows: the number of the document within the row, from 0
    attention_mask[t]   padded rows: 1 for a token, 0 for padding, which is on the right

The last two are optional and never both there.

>>> import numpy as np
>>> row = {"input_ids": np.array([5, 6, 7]), "targets": np.array([6, 7, IGNORED]), "segment_ids": np.zeros(3, np.int64)}
>>> sorted(collate([row, row]))
['input_ids', 'targets']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

IGNORED = -100
"""A target that is not counted, as in torch's cross entropy."""

Row = dict[str, np.ndarray]


@runtime_checkable
class Rows(Protocol):
    """A finite table of rows of one length."""

    @property
    def content_hash(self) -> str:
        """Equal for equal rows, on every machine."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Row: ...


@runtime_checkable
class RowStream(Protocol):
    """An endless sequence of rows whose place can be written down and found again."""

    def __iter__(self) -> RowStream: ...

    def __next__(self) -> Row: ...

    def state_dict(self) -> dict[str, Any]:
        """The place in the sequence, in values that JSON has."""
        ...

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Go to a place; the rows that would have followed there follow."""
        ...


@dataclass(frozen=True)
class LoadedData:
    """Rows to train on and rows to test on, how many tokens there are, and what a record says about them."""

    train: Rows | RowStream
    test: Rows
    vocab_size: int
    tokenizer: PreTrainedTokenizerBase | None
    """None for a recall task."""
    facts: dict[str, Any]
    """What the data is, in values that JSON has."""


def collate(rows: Sequence[Row]) -> dict[str, Tensor]:
    """Rows of one length as a batch of tensors.

    ``segment_ids`` is left out when each row is one segment, ``attention_mask`` when nothing is padded: then a model
    can take its plain path.
    """
    import torch

    batch = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    segments = batch.get("segment_ids")
    if segments is not None and (segments == segments[:, :1]).all():
        del batch["segment_ids"]
    mask = batch.get("attention_mask")
    if mask is not None and mask.all():
        del batch["attention_mask"]
    return {name: torch.from_numpy(values) for name, values in batch.items()}
