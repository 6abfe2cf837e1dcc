"""What a study's page says in words and lists: verdicts, variants, numbers of others, runs, how to repeat it."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from softmax_rnn.console import plural
from softmax_rnn.report.cells import Cell, Column, Value
from softmax_rnn.report.data_blocks import ColumnOf, Row, rows_table
from softmax_rnn.report.elements import (
    Block,
    CommandBlock,
    Formula,
    Note,
    Prose,
    Section,
    Subheading,
    Verdict,
    Verdicts,
)
from softmax_rnn.report.study_final import ONE_SEED
from softmax_rnn.report.study_rows import Results, measured, placed, seeds_of, summary_rows

STATES = ("finished", "incomplete", "failed", "planned")
LOG_OF_THE_LOSS = "log of the loss"


def counts_text(results: Results) -> str:
    """How many runs are in which state.

    >>> counts_text({"runs": [{"state": "finished"}, {"state": "failed"}]})
    '1 of 2 finished, 1 failed'
    """
    counts = Counter(entry["state"] for entry in results["runs"])
    others = [f"{counts[state]} {state}" for state in STATES[1:] if counts[state]]
    return ", ".join([f"{counts['finished']} of {len(results['runs'])} finished", *others])


def facts_of(results: Results) -> dict[str, str]:
    """What is shown under the title."""
    machine, study = results["machine"], results["study"]
    final = results.get("summary", {}).get("final", [])
    facts = {
        "Date": machine.get("date"),
        "Runs": counts_text(results),
        "Seeds": str(seeds_of(final)) if final else None,
        "Scale": study.get("scale"),
        "Machine": machines_text(results),
        "Cores": machine.get("cores"),
        "torch": machine.get("torch"),
        "softmax-rnn": machine.get("softmax_rnn"),
    }
    return {name: str(fact) for name, fact in facts.items() if fact}


def machines_text(results: Results) -> str:
    """The kind of processor; where seeds ran on several, which on which.

    >>> run = {"state": "finished", "processor": "A, AVX2", "settings": {"seed": 0}}
    >>> other = run | {"processor": "B, AVX512"}
    >>> runs = [run, run | {"settings": {"seed": 1}}, other | {"settings": {"seed": 2}}]
    >>> machines_text({"machine": {"processor": "B"}, "runs": runs})
    'A, AVX2 (seeds 0, 1) and B, AVX512 (seed 2)'
    """
    seeds: dict[str, set[int]] = {}
    for entry in results["runs"]:
        if entry["state"] == "finished":
            seeds.setdefault(entry.get("processor", ""), set()).add(entry["settings"].get("seed", 0))
    if len(seeds) < 2:
        return next(iter(seeds), "") or results["machine"].get("processor", "")
    return " and ".join(
        f"{kind} ({'seed' if len(ran) == 1 else 'seeds'} {', '.join(map(str, sorted(ran)))})"
        for kind, ran in seeds.items()
    )


def verdicts_section(results: Results) -> Section | None:
    """What became of each claim of the paper at this scale."""
    study, claims = results["study"], results.get("claims") or []
    blocks: list[Block] = [Prose(f"What was known: {study['found']}")] if study.get("found") else []
    if claims:
        final = results.get("summary", {}).get("final", [])
        blocks += [Note(ONE_SEED, "warning")] if final and seeds_of(final) < 2 else []
        text = "Reproduced, not reproduced or undecided at this scale: each claim has a rule in the study's file,"
        text += " computed from paired differences over seeds. What the rule cannot decide is undecided."
        blocks += [Verdicts([_verdict(claim) for claim in claims]), Prose(text)]
    return Section("verdicts", "What became of the paper's claims", blocks) if blocks else None


def _verdict(claim: Results) -> Verdict:
    paper = f" In the paper: {sentence(claim['paper'])}" if claim.get("paper") else ""
    evidence = f"{sentence(claim['evidence'])}{paper}"
    return Verdict(claim["claim"], claim["state"], evidence, claim["rule"], claim.get("margin", ""))


def sentence(text: str) -> str:
    """A note as a sentence; a name at its beginning stays as it is.

    >>> sentence("without RoPE"), sentence("taylor_1 falls behind")
    ('Without RoPE.', 'taylor_1 falls behind.')
    """
    begun = text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text
    return begun if begun.endswith((".", "!", "?")) else f"{begun}."


def variants_section(results: Results) -> Section | None:
    """Formula, parts, other names and notes of every variant."""
    blocks: list[Block] = []
    for name, facts in results.get("variants", {}).items():
        blocks += [Subheading(name), Formula(facts["formula"]), Prose(_about(facts))]
    return Section("variants", "The variants", blocks) if blocks else None


def _about(facts: Mapping[str, Any]) -> str:
    parts = "; ".join(f"{name}: {text}" for name, text in facts.get("parts", {}).items())
    said = [f"Parts: {parts or 'none'}."]
    if facts.get("same_as"):
        said.append(f"The same function as {', '.join(facts['same_as'])}.")
    said += [sentence(text) for text in (*facts.get("cancellations", ()), *facts.get("notes", ()))]
    return " ".join(dict.fromkeys(said))


def published_section(results: Results) -> Section | None:
    """Numbers of others, marked as theirs; ours beside those that name a variant, a line per setting."""
    rows = [row for one in results.get("published") or [] for row in beside_ours(results, one)]
    if not rows:
        return None
    columns: list[ColumnOf] = [(Column("source (theirs)", select=True), "source"), ("what", "what")]
    columns += [("their value", "value"), ("unit", "unit")]
    if any(row["ours"] for row in rows):
        columns += [("our variant", "variant"), ("our setting", "setting"), ("ours, at our scale", "ours")]
    text = "Numbers that others have published, with their models, data and budgets:"
    text += " differences between variants can be compared with ours, the numbers themselves cannot."
    table = rows_table("published-numbers", rows, columns, "Published by others.")
    return Section("published", "Published by others", [Prose(text), table])


def beside_ours(results: Results, one: Mapping[str, Any]) -> Iterator[Row]:
    """A published number with ours for its variant, in the same unit, in every setting."""
    metric = "test_accuracy" if one.get("unit") == "accuracy" else "test_loss"
    name = one.get("variant") or one["what"]
    rows = [row for row in summary_rows(results, "final", metric) if row["variant"] == name and row[metric]]
    for place, row in placed(rows):
        yield {**one, "variant": name, "setting": place, "ours": _in_unit(row[metric], one.get("unit"))}
    if not rows:
        yield {**one, "variant": one.get("variant"), "setting": None, "ours": None}


def _in_unit(value: Row, unit: str | None) -> Cell | None:
    if unit == LOG_OF_THE_LOSS:
        return measured({"mean": math.log(value["mean"]), "half": None})
    return measured(value)


def runs_section(results: Results) -> Section:
    """A line per run; failed and incomplete ones come first."""
    entries = results["runs"]
    blocks: list[Block] = []
    failed = [entry for entry in entries if entry["state"] == "failed"]
    if failed:
        reasons = "\n\n".join(f"{entry['name']}: {entry['error'] or 'no reason is known'}" for entry in failed)
        blocks.append(Note(f"Failed runs are left out of all means.\n\n{reasons}", "warning"))
    unfinished = sum(entry["state"] in ("incomplete", "planned") for entry in entries)
    if unfinished:
        one = "is not finished; what is shown of it" if unfinished == 1 else "are not finished; what is shown of them"
        blocks.append(Note(f"{unfinished} of {plural(len(entries), 'run')} {one} can still change."))
    columns: list[ColumnOf] = [
        (Column("variant", select=True), lambda entry: entry.get("label") or entry["varied"].get("variant")),
        (Column("state", select=True), "state"),
        ("seed", lambda entry: entry["settings"].get("seed")),
        ("step", lambda entry: max((p[0] for p in (*entry["train_curve"], *entry["test_curve"])), default=0)),
        ("steps", lambda entry: entry["settings"]["steps"]),
        (Column("test loss", ".4f"), lambda entry: _last(entry, "test_loss", "test_curve")),
        (Column("train loss", ".4f"), lambda entry: _last(entry, "train_loss", "train_curve")),
        (Column("accuracy", ".4f"), lambda entry: _last(entry, "test_accuracy", "accuracy_curve")),
        (Column("tokens/s", ",.0f"), lambda entry: (entry["result"] or {}).get("tokens_per_second")),
        (Column("seconds", ",.0f"), "seconds"),
        ("run", "name"),
        ("folder", "folder"),
    ]
    return Section("runs", "Runs", [*blocks, rows_table("runs-table", entries, columns, "All runs.")])


def _last(entry: Row, name: str, curve: str) -> Value:
    """The final number, or the latest one of a run that is not finished."""
    result = entry["result"] or {}
    return result[name] if name in result else entry[curve][-1][1] if entry[curve] else None


def repeat_section(results: Results) -> Section:
    """The commands."""
    folder = results["runs"][0]["folder"] if results["runs"] else "RUN"
    config = shlex.quote(f"{folder}/config.yaml")
    text = "Runs of a seed see the same data in the same order. On the same machine with the same versions the numbers"
    blocks: list[Block] = [
        Prose(f"{text} come out the same, bit for bit."),
        CommandBlock(results["study"]["command"], "Everything on this page; what is finished is not repeated."),
        CommandBlock(
            f"softmax-rnn train --config {config} --output DIR", "One run; every run's folder has its settings."
        ),
    ]
    return Section("repeat", "To repeat it", blocks)
