"""Batches of a process: rows of a step do not depend on how many share it, nor on the parts it is computed in."""

import numpy as np
import pytest
import torch

from softmax_rnn.errors import InputError
from softmax_rnn.train.feed import Feed, Share
from softmax_rnn.train.settings import TrainSettings

ROWS = [{"input_ids": np.array([i, i]), "targets": np.array([i, i])} for i in range(30)]


class Stream:
    """0, 1, 2, … as rows."""

    def __init__(self):
        self.place = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.place += 1
        return ROWS[(self.place - 1) % len(ROWS)]

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


def steps(rows, share, accumulate=1, first=0, count=4):
    """The rows of each step that one process computes."""
    settings = TrainSettings(batch_size=12, accumulate=accumulate, seed=3)
    feed = iter(Feed(rows() if callable(rows) else rows, settings, share, first))
    return [torch.cat([next(feed)["input_ids"][:, 0] for _ in range(accumulate)]).tolist() for _ in range(count)]


@pytest.mark.parametrize("rows", [ROWS, Stream], ids=["table", "stream"])
@pytest.mark.parametrize(("processes", "accumulate"), [(1, 3), (2, 1), (3, 2), (4, 3)])
def test_the_rows_of_a_step_do_not_depend_on_who_computes_them(rows, processes, accumulate):
    alone = steps(rows, Share())
    shared = [steps(rows, Share(rank, processes), accumulate) for rank in range(processes)]
    for number, step in enumerate(alone):
        parts = [one[number] for one in shared]
        assert sorted(row for part in parts for row in part) == sorted(step)
        assert {len(part) for part in parts} == {12 // processes}


def test_a_later_first_step_continues_the_order():
    assert steps(ROWS, Share(), first=2, count=2) == steps(ROWS, Share(), count=4)[2:]


def test_every_row_once_a_pass():
    seen = [row for step in steps(ROWS, Share(), count=5) for row in step]
    assert sorted(seen) == sorted([*range(30), *range(30)])


def test_the_place_in_a_stream_is_that_after_the_steps_drawn():
    feed = Feed(Stream(), TrainSettings(batch_size=12, accumulate=2), Share(1, 2), 0)
    batches = iter(feed)
    next(batches)
    assert feed.state_dict() == {"place": 12}
    next(batches)
    assert feed.state_dict() == {"place": 12}
    next(batches)
    assert feed.state_dict() == {"place": 24}


def test_a_batch_that_cannot_be_shared_equally_is_refused():
    with pytest.raises(InputError, match=r"batch_size: expected a multiple of processes × accumulate = 5 × 1, got 12"):
        Feed(ROWS, TrainSettings(batch_size=12), Share(0, 5), 0)
