"""The side of a document is a matter of its text alone."""

import random

import pytest

from softmax_rnn.data.split import check_split, in_test, sides
from softmax_rnn.errors import InputError

TEXTS = [f"text number {number}" for number in range(2000)]


def test_neither_order_nor_company_changes_a_side():
    mixed = random.Random(0).sample(TEXTS, 1000)
    known = {text: side for side, text in sides(TEXTS, 0.2, None)}
    assert {text: side for side, text in sides(mixed, 0.2, None)} == {text: known[text] for text in mixed}


@pytest.mark.parametrize("fraction", [0.02, 0.1, 0.5])
def test_the_share_is_the_fraction(fraction):
    share = sum(in_test(text, fraction) for text in TEXTS) / len(TEXTS)
    assert abs(share - fraction) < 4 * (fraction * (1 - fraction) / len(TEXTS)) ** 0.5  # four standard deviations


def test_a_larger_fraction_keeps_what_was_tested():
    assert all(in_test(text, 0.3) for text in TEXTS if in_test(text, 0.1))


def test_surplus_test_documents_do_not_become_training():
    every, few = list(sides(TEXTS, 0.2, None)), list(sides(TEXTS, 0.2, 7))
    assert [text for side, text in few if side == "train"] == [text for side, text in every if side == "train"]
    assert [text for side, text in few if side == "test"] == [text for side, text in every if side == "test"][:7]


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (12, 0, "test_fraction: 0.001 of 12 documents leaves the test split empty; try 0.25"),
        (0, 4, "test_fraction: 0.001 of 4 documents leaves the train split empty; try 0.0005"),
        (1, 0, "source: expected 2 documents or more to split into train and test, got 1; give a longer text, .*"),
    ],
)
def test_an_empty_side_is_refused(train, test, message):
    with pytest.raises(InputError, match=f"^{message}$"):
        check_split([("train", "a")] * train + [("test", "b")] * test, 0.001)
