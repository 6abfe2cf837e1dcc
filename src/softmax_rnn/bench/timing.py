"""Times of several contestants in one run: turn by turn, so that a noisy machine is noisy for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

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


WARM_UP_ON_CARD = 5
"""Rounds that do not count on a card: kernels are compiled in the first, clocks rise in the next."""


def race(contestants: dict[str, Work], rounds: int, clock: Callable[[], float] = time.perf_counter) -> Times:
    """Run all contestants ``rounds`` times in turn, after rounds that do not count: one, or more on a card."""
    on_card = torch.get_default_device().type == "cuda"
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    first = WARM_UP_ON_CARD if on_card else 1
    for turn in range(rounds + first):
        for name, work in contestants.items():
            took = _on_card(work) if on_card else _on_cpu(work, clock)
            if turn >= first:
                seconds[name].append(took)
    return Times(seconds)


def _on_cpu(work: Work, clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


def _on_card(work: Work) -> float:
    """By the card's events: what the host does meanwhile does not count."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000
