"""The page of a study: its results as sections to look at, and the files for papers beside it.

It reads the values of ``results.json`` and computes nothing; a section without data is left out.

>>> results = {"study": {"name": "empty", "title": "Empty", "asks": "Nothing?", "command": "softmax-rnn study empty"},
...            "machine": {"date": "2026-01-01"}, "runs": [], "variants": {}, "claims": []}
>>> [section.id for section in study_page(results).sections]
['runs', 'repeat']
"""

from __future__ import annotations

from pathlib import Path

from softmax_rnn.report import study_contrasts, study_curves, study_final, study_recall, study_words
from softmax_rnn.report.elements import Page
from softmax_rnn.report.page import save_figures, write_page
from softmax_rnn.report.plots import unchecked_charts
from softmax_rnn.report.study_rows import Results
from softmax_rnn.report.tables import write_tables
from softmax_rnn.report.terms_page import study_terms_section

SECTIONS = (
    study_words.verdicts_section,
    study_final.losses_section,
    study_contrasts.effects_section,
    study_contrasts.trends_section,
    study_recall.recall_section,
    study_final.orders_section,
    study_curves.scores_section,
    study_curves.curves_section,
    study_curves.positions_section,
    study_terms_section,
    study_final.costs_section,
    study_words.published_section,
    study_words.variants_section,
    study_words.runs_section,
    study_words.repeat_section,
)


def study_page(results: Results) -> Page:
    """The page of a study, or of runs put side by side."""
    study = results["study"]
    with unchecked_charts():
        sections = [section(results) for section in SECTIONS]
    return Page(
        study["title"],
        study.get("asks") or "What was measured in these runs.",
        [section for section in sections if section is not None],
        study_words.facts_of(results),
    )


def write_report(page: Page, output: Path) -> Path:
    """Write ``report.html``."""
    return write_page(page, output / "report.html")


def write_files(page: Page, output: Path, *, figures: bool = True) -> None:
    """Write ``tables/`` (CSV, Markdown, LaTeX) and ``figures/`` (SVG, PNG, PDF), which take longer than the page."""
    write_tables(page.tables(), output / "tables")
    if figures:
        save_figures(page, output / "figures")
