"""Which documents test: those whose text says so.

    test  ⇔  hash(text) / 2⁶⁴ < fraction

The split of a document depends only on its text: not on the order of files, not on the other documents, not on
a seed. Equal documents are in the same split.

>>> [name for name in ("a", "b", "c", "d") if in_test(name, 0.5)]
['a']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from softmax_rnn.console import say_once
from softmax_rnn.errors import InputError


def in_test(text: str, fraction: float) -> bool:
    """Whether a document is for testing."""
    return _hash(text) < fraction * 2**64


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8, person=b"softmax-rnn-test").digest(), "big")


def with_a_test(texts: Iterable[str], fraction: float) -> float:
    """The fraction, or where it leaves the test split empty the smallest that does not, with a line that says so.

    >>> with_a_test(["a", "b"], 0.5), with_a_test(["b", "c"], 0.5) > 0.5
    (0.5, True)
    """
    least, count = 2**64, 0
    for count, text in enumerate(texts, start=1):  # noqa: B007
        least = min(least, _hash(text))
        if least < fraction * 2**64:
            return fraction
    if count < 2:
        return fraction
    say_once(f"data: {fraction:g} of {count} documents leaves the test split empty; one document is taken for it")
    return (least + 1) / 2**64 * (1 + 1e-12)


def sides(texts: Iterable[str], fraction: float, test_documents: int | None) -> Iterator[tuple[str, str]]:
    """Each document with its split, "train" or "test". Test documents above the given number are left out."""
    tested = 0
    for text in texts:
        if not in_test(text, fraction):
            yield "train", text
        elif test_documents is None or tested < test_documents:
            tested += 1
            yield "test", text


def check_split(labelled: Iterable[tuple[str, str]], fraction: float) -> None:
    """Refuse an empty split, before anything is tokenised. It looks no further than it must.

    >>> check_split([("train", "a"), ("test", "b"), ("train", "c")], 0.5)
    """
    counts = {"train": 0, "test": 0}
    for side, _ in labelled:
        counts[side] += 1
        if all(counts.values()):
            return
    total = sum(counts.values())
    if total < 2:
        raise InputError(
            f"source: expected 2 documents or more to split into train and test, got {total};"
            " give a longer text, a folder of .txt files, or a .jsonl file with one document per line"
        )
    side, better = ("train", fraction / 2) if counts["test"] else ("test", min(0.5, max(2 * fraction, 3 / total)))
    raise InputError(
        f"test_fraction: {fraction:g} of {total} documents leaves the {side} split empty; try {better:.2g}"
    )
