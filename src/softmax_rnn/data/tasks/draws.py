"""Random choices without repetition, many rows at once, and the streams of random numbers they come from.

>>> generator = stream("mqar", "train", seed=0, block=0)
>>> distinct(generator, rows=2, count=5, low=10, high=15).sum(axis=1).tolist()
[60, 60]
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream(task: str, side: str, seed: int, block: int) -> np.random.Generator:
    """The random numbers of one block of rows: Philox, whose key is the start of SHA-256 over all that identifies it.

    Two blocks that differ in any of the four share nothing, in whatever order and process they are drawn.
    """
    digest = hashlib.sha256(f"{task}/{side}/{seed}/{block}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def distinct(generator: np.random.Generator, rows: int, count: int, low: int, high: int) -> np.ndarray:
    """int64[rows, count]: each row has distinct numbers of low … high − 1, every ordered choice equally likely."""
    assert count <= high - low
    chosen = np.empty((count, rows), np.int64)
    for i in range(count):
        # A rank among the numbers that are still free becomes a number by stepping over those that are taken.
        number = generator.integers(0, high - low - i, rows)
        for taken in np.sort(chosen[:i], axis=0):
            number += number >= taken
        chosen[i] = number
    return low + chosen.T


def weighted_distinct(generator: np.random.Generator, rows: int, count: int, weights: np.ndarray) -> np.ndarray:
    """int64[rows, count]: indices drawn one after another, each in proportion to its weight among those left.

    Index g rings after an exponential time of rate w_g. Whatever has rung already, the next one is g with probability
    w_g / Σ w over the rest, so the order of ringing is the order of drawing.
    """
    assert count <= len(weights)
    times = generator.standard_exponential((rows, len(weights))) / weights
    return np.argsort(times, axis=1, kind="stable")[:, :count]
