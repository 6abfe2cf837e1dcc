"""Who sees whom, against the definition written as a double loop."""

from __future__ import annotations

import pytest
import torch

from attention.cases import MASKS, B, T, end_mask, segment_ids
from softmax_rnn.attention.visibility import Visibility, visibility

CPU = torch.device("cpu")
KINDS = MASKS | {"ends": lambda time: {"key_mask": end_mask(time)}}
KINDS |= {"packed ends": lambda time: {"key_mask": end_mask(time), "segment_ids": segment_ids(time)}}


def literal(key_mask=None, segment_ids=None, time: int = T) -> torch.Tensor:
    allowed = torch.zeros(B, time, time, dtype=torch.bool)
    for b in range(B):
        for i in range(time):
            for j in range(i + 1):
                real = key_mask is None or bool(key_mask[b, j])
                same = segment_ids is None or bool(segment_ids[b, i] == segment_ids[b, j])
                allowed[b, i, j] = real and same
    return allowed


def seen_as(kind: str) -> tuple[Visibility, torch.Tensor]:
    masks = KINDS[kind](T)
    return visibility(masks.get("key_mask"), masks.get("segment_ids")), literal(**masks)


@pytest.mark.parametrize("kind", KINDS)
def test_allowed(kind):
    seen, expected = seen_as(kind)
    everything = slice(0, T)
    assert torch.equal(seen.allowed(everything, everything, CPU).expand(B, T, T), expected)
    queries, keys = slice(5, 12), slice(3, 9)
    assert torch.equal(seen.allowed(queries, keys, CPU).expand(B, 7, 6), expected[:, queries, keys])


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_count_the_keys(kind):
    seen, expected = seen_as(kind)
    assert torch.equal(seen.lengths(B, T, CPU), expected.sum(-1))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_the_batch(kind):
    seen, expected = seen_as(kind)
    one = seen.batches(1, 2).allowed(slice(0, T), slice(0, T), CPU)
    assert torch.equal(one.expand(1, T, T)[0], expected[1])


def test_what_restricts_nothing_is_left_out():
    mask, ids = torch.ones(B, T, dtype=torch.bool), torch.full((B, T), 4)
    assert visibility(mask, ids).is_plain
    assert not visibility(end_mask(), None).is_plain
    assert not visibility(None, segment_ids()).is_plain


def test_one_position_has_no_border():
    assert visibility(None, torch.zeros(B, 1, dtype=torch.long)).is_plain


@pytest.mark.parametrize("kind", ["packed", "ends", "packed ends"])
def test_pieces_cover_exactly_what_is_seen(kind):
    seen, expected = seen_as(kind)
    covered = torch.zeros(B, T, T, dtype=torch.bool)
    for piece in seen.pieces:
        size = piece.queries.stop - piece.queries.start, piece.keys.stop - piece.keys.start
        block = torch.ones(size, dtype=torch.bool)
        assert not covered[piece.row, piece.queries, piece.keys].any()
        covered[piece.row, piece.queries, piece.keys] = block.tril() if piece.causal else block
    assert torch.equal(covered, expected)


@pytest.mark.parametrize("kind", ["padded", "both"])
def test_a_hole_cannot_be_cut_into_pieces(kind):
    assert seen_as(kind)[0].pieces is None


def test_pieces_come_in_order():
    pieces = seen_as("packed ends")[0].pieces
    places = [(piece.row, piece.queries.start) for piece in pieces]
    assert places == sorted(places)
