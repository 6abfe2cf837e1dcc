"""Claims, decided by rules that are fixed before the runs.

Where a learning rate varies, each variant enters with the one that is best on average. Panels (data sets, sizes …) are
decided one by one; the claim is reproduced when all are, *not reproduced* when one is not, and *undecided* otherwise.
One seed decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softmax_rnn.report.elements import State
from softmax_rnn.study.definition import Claim
from softmax_rnn.study.paired import Measured, Panel, panel_of


@dataclass(frozen=True)
class Decision:
    """The state of a claim and the numbers that it rests on."""

    state: State
    evidence: str
    needed: str = ""
    """What would decide it, where it is undecided."""


def decide(claim: Claim, runs: Sequence[Measured]) -> Decision:
    """The state of a claim, given the finished runs of its grid."""
    panels: dict[Panel, list[Measured]] = {}
    for run in (_compared(run, claim.compares) for run in runs):
        panels.setdefault(panel_of(run.varied), []).append(run)
    if not panels:
        return Decision("undecided", "no finished runs", "runs")
    decided = [(_heading(panel), *claim.rule.decide(group, claim.metric)) for panel, group in panels.items()]
    evidence = "; ".join(f"{heading}{text}" for heading, _, text, _ in decided)
    states = {state for _, state, _, _ in decided}
    if "not reproduced" in states:
        return Decision("not reproduced", evidence)
    if states == {"reproduced"}:
        return Decision("reproduced", evidence)
    needed = "; ".join(f"{heading}{more}" for heading, state, _, more in decided if state == "undecided")
    return Decision("undecided", evidence, needed)


def _compared(run: Measured, setting: str) -> Measured:
    """The run with the compared setting in the place of the variant, which becomes one of its settings."""
    if setting == "variant":
        return run
    varied = {"attention" if name == "variant" else name: run.varied[name] for name in run.varied if name != setting}
    return Measured({**varied, "variant": run.varied[setting]}, run.metrics, run.processor)


def _heading(panel: Panel) -> str:
    name = ", ".join(f"{name} {value}" for name, value in panel)
    return f"{name}: " if name else ""
