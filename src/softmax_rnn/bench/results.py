"""What a benchmark measures: rows of numbers, and claims with limits that they can break."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from softmax_rnn.attention.nonpositive import NonPositiveWarning
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.machine import describe


@dataclass(frozen=True)
class Claim:
    """A sentence about speed or memory with its limit and what was measured; None: measured, nothing claimed."""

    text: str
    measured: float
    limit: float | None
    at_most: bool = True

    @property
    def holds(self) -> bool | None:
        """Whether the measurement is within the limit."""
        if self.limit is None:
            return None
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit


@dataclass(frozen=True)
class Choice:
    """What the planner chose, what was fastest, and how much slower the planner's form was."""

    variant: str
    time: int
    key_dim: int
    planned: str
    fastest: str
    loss: float


@dataclass
class Results:
    """Everything a benchmark measured."""

    machine: dict[str, Any] = field(default_factory=describe)
    rows: list[dict[str, Any]] = field(default_factory=list)
    memory: list[dict[str, Any]] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        names = [row["variant"] for row in (*self.rows, *self.memory) if "variant" in row]
        labels = {name: VARIANTS.short(name) for name in names if VARIANTS.short(name) != name}
        claims = [asdict(claim) | {"holds": claim.holds} for claim in self.claims]
        return asdict(self) | {"claims": claims, "labels": labels}


@dataclass(frozen=True)
class Task:
    """A task of a benchmark: its title, and the function that adds to the results."""

    title: str
    work: Callable[[Results], None]


def run(tasks: list[Task], progress: Callable[[str], None] = lambda title: None) -> Results:
    """All tasks, one after another; ``progress`` is called with each title before its turn."""
    results = Results()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonPositiveWarning)
        for task in tasks:
            progress(task.title)
            task.work(results)
    return results
