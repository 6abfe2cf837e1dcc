"""Documents as rows of one length.

    packed   documents one after another, cut every ``context`` tokens; segment_ids keeps them apart
    padded   one document per row, cut off at ``context`` tokens or filled with eos

The target of a position is the token after it in the same document; the last token of a document has none.

>>> tokens = Tokens(np.array([5, 6, 0, 7, 0], np.uint16), np.array([0, 3, 5]), eos=0, text_bytes=3, content_hash="")
>>> row = PackedRows(tokens, context=4, drop_last=True)[0]
>>> [row[name].tolist() for name in ("input_ids", "targets", "segment_ids")]
[[5, 6, 0, 7], [6, 0, -100, 0], [0, 0, 0, 1]]
"""

from __future__ import annotations

import hashlib

import numpy as np

from softmax_rnn.data.rows import IGNORED, Row
from softmax_rnn.data.token_files import Tokens


def packed_row(tokens: np.ndarray, starts: np.ndarray, context: int, eos: int) -> Row:
    """A row from up to ``context`` + 1 tokens, the last of which is only a target.

    ``starts``: the places, from 1 on, where another document begins. Where tokens are missing, eos fills the row as a
    separate segment.
    """
    here = min(len(tokens), context)
    inputs = np.full(context + 1, eos, np.int64)
    inputs[: len(tokens)] = tokens
    begins = np.zeros(context + 1, np.int64)
    begins[starts] = 1
    if len(tokens) <= context:
        begins[here] = 1
    targets = np.where(begins[1:], IGNORED, inputs[1:])
    targets[here:] = IGNORED
    return {"input_ids": inputs[:-1], "targets": targets, "segment_ids": np.cumsum(begins[:-1])}


def padded_row(tokens: np.ndarray, context: int, eos: int) -> Row:
    """A row from the tokens of one document."""
    here = min(len(tokens), context)
    inputs = np.full(context, eos, np.int64)
    inputs[:here] = tokens[:here]
    targets = np.full(context, IGNORED, np.int64)
    following = tokens[1 : context + 1]
    targets[: len(following)] = following
    mask = np.zeros(context, np.int64)
    mask[:here] = 1
    return {"input_ids": inputs, "targets": targets, "attention_mask": mask}


class PackedRows:
    """All tokens in rows. ``drop_last`` leaves out a last row that is not full."""

    def __init__(self, tokens: Tokens, context: int, *, drop_last: bool):
        self._tokens, self._context = tokens, context
        total = len(tokens.tokens)
        self._rows = total // context if drop_last else -(-total // context)
        self.content_hash = _hash("packed", context, drop_last, tokens.content_hash)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: int) -> Row:
        start = range(self._rows)[index] * self._context
        piece = self._tokens.tokens[start : start + self._context + 1]
        offsets = self._tokens.offsets
        first, last = np.searchsorted(offsets, (start + 1, start + len(piece)))
        return packed_row(piece, offsets[first:last] - start, self._context, self._tokens.eos)


class PaddedRows:
    """A row for each document."""

    def __init__(self, tokens: Tokens, context: int):
        self._tokens, self._context = tokens, context
        self.content_hash = _hash("padded", context, tokens.content_hash)

    def __len__(self) -> int:
        return self._tokens.documents

    def __getitem__(self, index: int) -> Row:
        document = range(len(self))[index]
        start, end = self._tokens.offsets[document : document + 2]
        return padded_row(self._tokens.tokens[start:end], self._context, self._tokens.eos)


def _hash(*facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()
