"""Rows read back token by token are the documents."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmax_rnn.data.layouts import PackedRows, PaddedRows
from softmax_rnn.data.rows import IGNORED

from .small import EOS, tokens_of

DOCUMENTS = st.lists(st.lists(st.integers(0, 8), max_size=12), min_size=1, max_size=12)


@given(DOCUMENTS, st.integers(1, 15))
def test_all_packed_test_rows_are_the_documents(documents, context):
    tokens = tokens_of(documents)
    rows = PackedRows(tokens, context, drop_last=False)
    inputs = np.concatenate([rows[index]["input_ids"] for index in range(len(rows))])
    targets = np.concatenate([rows[index]["targets"] for index in range(len(rows))])
    total = len(tokens.tokens)
    assert inputs[:total].tolist() == tokens.tokens.tolist()
    assert (inputs[total:] == EOS).all()
    expected = [IGNORED] * len(targets)
    for start, end in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True):
        for place in range(start, end - 1):
            expected[place] = int(tokens.tokens[place + 1])
    assert targets.tolist() == expected


@given(DOCUMENTS, st.integers(1, 15))
def test_segments_are_the_documents_counted_within_each_row(documents, context):
    tokens = tokens_of(documents)
    owner = np.repeat(np.arange(len(documents) + 1), [*np.diff(tokens.offsets), context])  # padding is one more
    rows = PackedRows(tokens, context, drop_last=False)
    for index in range(len(rows)):
        here = owner[index * context : (index + 1) * context]
        assert rows[index]["segment_ids"].tolist() == (here - here[0]).tolist()


@given(DOCUMENTS, st.integers(1, 15))
def test_training_leaves_out_only_a_last_row_that_is_not_full(documents, context):
    tokens = tokens_of(documents)
    every, full = PackedRows(tokens, context, drop_last=False), PackedRows(tokens, context, drop_last=True)
    assert len(full) == len(tokens.tokens) // context
    assert len(every) - len(full) == (len(tokens.tokens) % context > 0)
    for index in range(len(full)):
        for name, values in full[index].items():
            np.testing.assert_array_equal(values, every[index][name])


@given(DOCUMENTS, st.integers(1, 15))
def test_a_padded_row_is_one_document(documents, context):
    rows = PaddedRows(tokens_of(documents), context)
    assert len(rows) == len(documents)
    for index, document in enumerate(documents):
        whole = [*document, EOS]
        row = rows[index]
        real = min(len(whole), context)
        assert row["input_ids"].tolist() == whole[:context] + [EOS] * (context - real)
        assert row["attention_mask"].tolist() == [1] * real + [0] * (context - real)
        following = whole[1 : context + 1]
        assert row["targets"].tolist() == following + [IGNORED] * (context - len(following))


@pytest.mark.parametrize("make", [lambda t: PackedRows(t, 4, drop_last=True), lambda t: PaddedRows(t, 4)])
def test_rows_behave_like_a_sequence(make):
    rows = make(tokens_of([[1, 2, 3], [4, 5, 6, 7], [8]]))
    np.testing.assert_array_equal(rows[-1]["input_ids"], rows[len(rows) - 1]["input_ids"])
    with pytest.raises(IndexError):
        rows[len(rows)]
    assert all(values.dtype == np.int64 for values in rows[0].values())


def test_the_hash_knows_the_layout_and_the_context():
    tokens = tokens_of([[1, 2, 3]])
    hashes = {
        PackedRows(tokens, 2, drop_last=True).content_hash,
        PackedRows(tokens, 3, drop_last=True).content_hash,
        PackedRows(tokens, 2, drop_last=False).content_hash,
        PaddedRows(tokens, 2).content_hash,
    }
    assert len(hashes) == 4
    assert PaddedRows(tokens, 2).content_hash == PaddedRows(tokens_of([[1, 2, 3]]), 2).content_hash
