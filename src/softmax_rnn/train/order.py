"""Which rows a step takes: a function of the seed and the step alone, so there is no order to save or to lose.

The rows are read in passes; pass e takes them in the permutation of (seed, e). Position p of the endless sequence is
row permutation_e[p mod n] with e = p div n, and step s takes positions s·B … (s+1)·B − 1 for a batch of B.

>>> order = Order(rows=10, seed=0)
>>> sorted(order.take(0, 10).tolist()) == list(range(10))
True
>>> (order.take(8, 4) == np.concatenate([order.take(8, 2), order.take(10, 2)])).all()
np.True_
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np


@dataclass(frozen=True)
class Order:
    """The endless order of a finite table of rows."""

    rows: int
    seed: int

    def take(self, position: int, count: int) -> np.ndarray:
        """The rows at ``count`` positions from ``position`` on."""
        taken: list[np.ndarray] = []
        while count:
            turn, offset = divmod(position, self.rows)
            part = _permutation(self.rows, self.seed, turn)[offset : offset + count]
            taken.append(part)
            position, count = position + len(part), count - len(part)
        return np.concatenate(taken)


@lru_cache(maxsize=4)
def _permutation(rows: int, seed: int, turn: int) -> np.ndarray:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, turn]))).permutation(rows)
