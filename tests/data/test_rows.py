"""Batches leave out what says nothing."""

import numpy as np
import torch

from softmax_rnn.data.layouts import PackedRows
from softmax_rnn.data.rows import Rows, RowStream, collate
from softmax_rnn.data.text_stream import TextStream

from .small import tokens_of


def row(**parts):
    return {name: np.array(values, np.int64) for name, values in parts.items()}


def test_one_segment_in_each_row_needs_no_segment_ids():
    one = row(input_ids=[1, 2], targets=[2, 3], segment_ids=[0, 0])
    two = row(input_ids=[1, 2], targets=[-100, 3], segment_ids=[0, 1])
    assert set(collate([one, one])) == {"input_ids", "targets"}
    assert collate([one, two])["segment_ids"].tolist() == [[0, 0], [0, 1]]


def test_without_padding_no_mask_is_needed():
    full = row(input_ids=[1, 2], targets=[2, 3], attention_mask=[1, 1])
    short = row(input_ids=[1, 0], targets=[-100, -100], attention_mask=[1, 0])
    assert set(collate([full, full])) == {"input_ids", "targets"}
    batch = collate([full, short])
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 0]]
    assert all(values.dtype == torch.int64 and values.shape == (2, 2) for values in batch.values())


def test_rows_and_streams_are_told_apart():
    rows = PackedRows(tokens_of([[1, 2, 3]]), 2, drop_last=True)
    assert isinstance(rows, Rows) and not isinstance(rows, RowStream)
    assert issubclass(TextStream, RowStream)
