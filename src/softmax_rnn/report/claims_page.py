"""All claims on one page, the paper's first: the verdict at each scale, the numbers, what would decide the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from softmax_rnn.report.cells import Column
from softmax_rnn.report.data_blocks import ColumnOf, rows_table
from softmax_rnn.report.elements import STATES, Block, CommandBlock, Page, Prose, Section, TableBlock
from softmax_rnn.report.study_curves import as_id

Board = Mapping[str, Any]
COLUMNS: list[ColumnOf] = [
    ("claim", "claim"),
    (Column("scale", select=True), "scale"),
    (Column("verdict", select=True), "state"),
    ("margin", "margin"),
    ("numbers", "evidence"),
    ("in the paper", "paper"),
    ("what would decide it", "needed"),
]
OTHERS: list[ColumnOf] = [("source (theirs)", "source"), ("what", "what"), ("their value", "value"), ("unit", "unit")]


def claims_page(board: Board) -> Page:
    """A section per study, in the order of the paper, and the numbers of others at the end."""
    sections = [_study(study) for study in board["studies"]]
    published = list({str(one): one for study in board["studies"] for one in study["published"]}.values())
    if published:
        text = "Numbers published by others, with other models, data and budgets: differences between variants can be"
        text += " compared with ours, the numbers themselves cannot."
        table = rows_table("published-numbers", published, OTHERS, "Published by others, in other settings.")
        sections.append(Section("published", "Published by others", [Prose(text), table]))
    text = "What would decide an undecided claim is an estimate: the seeds needed if mean and spread stay as they are."
    command = CommandBlock(f"softmax-rnn report {board['folder']}", "This page.")
    sections.append(Section("repeat", "To repeat it", [Prose(text), command]))
    return Page("Every claim at each scale", counts_text(board["studies"]), sections)


def counts_text(studies: Sequence[Board]) -> str:
    """How many verdicts of each kind there are, scale by scale; then each claim once, at its largest finished scale.

    >>> rows = [{"claim": "L2 ≈ softmax", "scale": "cpu", "state": "undecided"}]
    >>> rows += [{"claim": "L2 ≈ softmax", "scale": "overnight", "state": "reproduced"}]
    >>> counts_text([{"claims": rows}])
    'cpu: 1 undecided; overnight: 1 reproduced; each claim at its largest finished scale: 1 reproduced'
    """
    scales: dict[str, Counter[str]] = {}
    largest: dict[tuple[int, str], str] = {}
    for number, study in enumerate(studies):
        for row in study["claims"]:  # of a claim, the smaller scale first
            scales.setdefault(row["scale"], Counter())[row["state"]] += 1
            if row["state"] in STATES:
                largest[number, row["claim"]] = row["state"]
    if len(scales) > 1:
        scales["each claim at its largest finished scale"] = Counter(largest.values())
    shown = (*STATES, "unfinished", "not run")
    return "; ".join(
        f"{scale}: " + ", ".join(f"{counts[state]} {state}" for state in shown if counts[state])
        for scale, counts in scales.items()
    )


def claims_table(study: Board) -> TableBlock:
    """The claims of a study, a line per scale."""
    return rows_table(f"claims-{as_id(study['name'])}", study["claims"], COLUMNS, f"Claims of {study['name']}.")


def _study(study: Board) -> Section:
    blocks: list[Block] = [Prose(f"What was known: {study['found']}")] if study["found"] else []
    return Section(as_id(study["name"]), study["title"], [*blocks, claims_table(study)])
