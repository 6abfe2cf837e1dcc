"""Batches of a process: rows of a step do not depend on how many share it, nor on the parts it is computed in."""

import numpy as np
import pytest
import torch

from softmax_rnn.errors import InputError
from softmax_rnn.train.batches import Batches, Order
from softmax_rnn.train.processes import Share
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
    batches = Batches(rows() if callable(rows) else rows, settings, share)
    drawn = [batches.of_step(step) for step in range(first, first + count)]
    assert {len(parts) for parts in drawn} == {accumulate}
    return [torch.cat([part["input_ids"][:, 0] for part in parts]).tolist() for parts in drawn]


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
    batches = Batches(Stream(), TrainSettings(batch_size=12, accumulate=2), Share(1, 2))
    batches.of_step(0)
    assert batches.state_dict() == {"place": 12}
    batches.of_step(1)
    assert batches.state_dict() == {"place": 24}
    batches.load_state_dict({"place": 12})
    assert batches.of_step(1)[0]["input_ids"][:, 0].tolist() == [15, 16, 17]


def test_a_batch_that_cannot_be_shared_equally_is_refused():
    with pytest.raises(InputError, match=r"batch_size: expected a multiple of processes × accumulate = 5 × 1, got 12"):
        Batches(ROWS, TrainSettings(batch_size=12), Share(0, 5))


def test_every_row_once_a_pass_and_each_pass_in_another_order():
    order = Order(rows=37, seed=5)
    passes = [order.take(37 * turn, 37).tolist() for turn in range(3)]
    assert all(sorted(one) == list(range(37)) for one in passes)
    assert passes[0] != passes[1] != passes[2] != passes[0]


@pytest.mark.parametrize("batch", [1, 4, 10, 37, 100])
def test_batches_are_pieces_of_one_sequence(batch):
    order = Order(rows=37, seed=5)
    whole = order.take(0, 400)
    pieces = [order.take(start, min(batch, 400 - start)) for start in range(0, 400, batch)]
    assert (np.concatenate(pieces) == whole).all()


def test_the_seed_makes_the_order():
    first, again, other = Order(50, 1).take(0, 50), Order(50, 1).take(0, 50), Order(50, 2).take(0, 50)
    assert (first == again).all()
    assert not (first == other).all()
