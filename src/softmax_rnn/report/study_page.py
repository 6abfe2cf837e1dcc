"""The page of a study: its results as sections to look at, and the files for papers beside it.

It reads the values of ``results.json`` and computes nothing; a section without data is left out.

>>> results = {"study": {"name": "empty", "title": "Empty", "asks": "Nothing?", "command": "softmax-rnn study empty"},
...            "machine": {"date": "2026-01-01"}, "runs": [], "variants": {}, "claims": []}
>>> [section.id for section in study_page(results).sections]
['runs', 'repeat']
"""

from __future__ import annotations

from pathlib import Path

from softmax_rnn.report.elements import Block, Note, Page, Prose, Section, Verdict, Verdicts
from softmax_rnn.report.labels import labelled
from softmax_rnn.report.page import save_figures, write_page
from softmax_rnn.report.plots import unchecked_charts
from softmax_rnn.report.study_costs import costs_section
from softmax_rnn.report.study_losses import ONE_SEED, curves_section, losses_section, positions_section
from softmax_rnn.report.study_orders import orders_section
from softmax_rnn.report.study_recall import recall_section
from softmax_rnn.report.study_runs import counts_text, repeat_section, runs_section
from softmax_rnn.report.study_terms import terms_section
from softmax_rnn.report.study_values import Results, seeds_of
from softmax_rnn.report.study_variants import published_section, sentence, variants_section
from softmax_rnn.report.tables import write_tables


def study_page(results: Results) -> Page:
    """The page of a study, or of runs put side by side."""
    with unchecked_charts():
        return _page(labelled(results))


def _page(results: Results) -> Page:
    study = results["study"]
    sections = [
        verdicts_section(results),
        losses_section(results),
        recall_section(results),
        orders_section(results),
        curves_section(results),
        positions_section(results),
        terms_section(results),
        costs_section(results),
        published_section(results),
        variants_section(results),
        runs_section(results),
        repeat_section(results),
    ]
    return Page(
        study["title"],
        study.get("asks") or "What was measured in these runs.",
        [section for section in sections if section is not None],
        facts_of(results),
    )


def facts_of(results: Results) -> dict[str, str]:
    """What stands under the title."""
    machine, study = results["machine"], results["study"]
    final = results.get("summary", {}).get("final", [])
    facts = {
        "Date": machine.get("date"),
        "Runs": counts_text(results),
        "Seeds": str(seeds_of(final)) if final else None,
        "Scale": study.get("scale"),
        "Machine": machine.get("processor"),
        "Cores": machine.get("cores"),
        "torch": machine.get("torch"),
        "softmax-rnn": machine.get("softmax_rnn"),
    }
    return {name: str(fact) for name, fact in facts.items() if fact}


def verdicts_section(results: Results) -> Section | None:
    """What became of each claim of the paper at this scale."""
    study, claims = results["study"], results.get("claims") or []
    blocks: list[Block] = []
    if study.get("found"):
        blocks.append(Prose(f"The paper found: {study['found']}"))
    if claims:
        final = results.get("summary", {}).get("final", [])
        if final and seeds_of(final) < 2:
            blocks.append(Note(ONE_SEED, "warning"))
        blocks.append(Verdicts([_verdict(claim) for claim in claims]))
        text = "Reproduced, not reproduced or undecided at this scale: each claim has a rule that was fixed before the"
        text += " runs and is computed from paired differences over seeds. What the rule cannot tell is undecided."
        blocks.append(Prose(text))
    return Section("verdicts", "What became of the paper's claims", blocks) if blocks else None


def _verdict(claim: Results) -> Verdict:
    paper = f" In the paper: {sentence(claim['paper'])}" if claim.get("paper") else ""
    evidence = f"{sentence(claim['evidence'])}{paper}"
    return Verdict(claim["claim"], claim["state"], evidence, claim["rule"], claim.get("margin", ""))


def write_report(page: Page, output: Path) -> Path:
    """Write ``report.html``."""
    return write_page(page, output / "report.html")


def write_files(page: Page, output: Path, *, figures: bool = True) -> None:
    """Write ``tables/`` (CSV, Markdown, LaTeX) and ``figures/`` (SVG, PNG, PDF), which take longer than the page."""
    write_tables(page.tables(), output / "tables")
    if figures:
        save_figures(page, output / "figures")
