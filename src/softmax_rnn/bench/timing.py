"""Times of several contestants in one run: turn by turn, so that a noisy machine is noisy for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

Work = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """Seconds of each contestant, round by round."""

    seconds: dict[str, list[float]]

    def of(self, name: str) -> float:
        """The median time of a contestant."""
        return median(self.seconds[name])

    def ratio(self, name: str, peer: str) -> float:
        """The median, over the rounds, of the contestant's time divided by the peer's in the same round."""
        pairs = zip(self.seconds[name], self.seconds[peer], strict=True)
        return median(mine / theirs for mine, theirs in pairs)


def race(contestants: dict[str, Work], rounds: int) -> Times:
    """Run all contestants ``rounds`` times in turn, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds + 1):
        for name, work in contestants.items():
            start = time.perf_counter()
            work()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return Times(seconds)
