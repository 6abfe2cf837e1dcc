"""The runs of a study on its page: what became of each, and the commands that repeat them."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Any

from softmax_rnn.report.cells import Cell, Column, Value
from softmax_rnn.report.elements import Block, CommandBlock, Note, Prose, Section, TableBlock
from softmax_rnn.report.study_values import Results, Row

STATES = ("finished", "incomplete", "failed", "planned")


def counts_text(results: Results) -> str:
    """How many runs are in which state.

    >>> counts_text({"runs": [{"state": "finished"}, {"state": "failed"}]})
    '1 of 2 finished, 1 failed'
    """
    found = Counter(entry["state"] for entry in results["runs"])
    others = [f"{found[state]} {state}" for state in STATES[1:] if found[state]]
    return ", ".join([f"{found['finished']} of {len(results['runs'])} finished", *others])


def runs_section(results: Results) -> Section:
    """A line a run; failed and incomplete ones are told first."""
    entries = results["runs"]
    blocks: list[Block] = []
    failed = [entry for entry in entries if entry["state"] == "failed"]
    if failed:
        told = "\n\n".join(f"{entry['name']}: {entry['error'] or 'no reason is known'}" for entry in failed)
        blocks.append(Note(f"Failed runs are left out of all means.\n\n{told}", "warning"))
    unfinished = sum(entry["state"] in ("incomplete", "planned") for entry in entries)
    if unfinished:
        blocks.append(
            Note(f"{unfinished} of {len(entries)} runs are not finished; what is shown of them can still change.")
        )
    columns: list[str | Column] = ["run", Column("state", select=True), "seed", "step"]
    columns += [Column("test loss", ".4f"), Column("train loss", ".4f"), Column("accuracy", ".4f")]
    columns += [Column("tokens/s", ",.0f"), Column("seconds", ",.0f"), "folder"]
    rows = [_row(entry) for entry in entries]
    blocks.append(TableBlock("runs-table", columns, rows, "All runs.", filterable=True))
    return Section("runs", "Runs", blocks)


def _row(entry: Row) -> list[Value]:
    result, settings = entry["result"] or {}, entry["settings"]
    steps = [point[0] for point in (*entry["train_curve"][-1:], *entry["test_curve"][-1:])]
    numbers = [_last(entry, result, *names) for names in (("test_loss", "test_curve"), ("train_loss", "train_curve"))]
    accuracy = _last(entry, result, "test_accuracy", "accuracy_curve")
    step = max(steps, default=0)
    row: list[Value] = [entry["name"], entry["state"], settings.get("seed")]
    row += [Cell(f"{step:,} of {settings['steps']:,}", step), *numbers, accuracy]
    return [*row, result.get("tokens_per_second"), entry.get("seconds"), entry["folder"]]


def _last(entry: Row, result: Row, name: str, curve: str) -> Any:
    """The final number, or the latest one of a run that is not finished."""
    if name in result:
        return result[name]
    return entry[curve][-1][1] if entry[curve] else None


def repeat_section(results: Results) -> Section:
    """The commands."""
    study, entries = results["study"], results["runs"]
    folder = entries[0]["folder"] if entries else "RUN"
    config = shlex.quote(f"{folder}/config.yaml")
    blocks: list[Block] = [
        Prose(
            "Runs of a seed see the same data in the same order. On the same machine with the same versions the"
            " numbers come out the same, bit for bit."
        ),
        CommandBlock(study["command"], "Everything on this page; what is finished is not repeated."),
        CommandBlock(f"softmax-rnn train --config {config} --output DIR", "One run; every run's folder has its own."),
    ]
    return Section("repeat", "To repeat it", blocks)
