"""The tab "Runs": a report that compares any runs in a folder."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from softmax_rnn.errors import InputError
from softmax_rnn.explore.tabs import ONCE, in_one_line
from softmax_rnn.explore.views import note_html

MOST_RUNS = 60
FIRST_RUNS = 4
"""Runs that are chosen to begin with."""


def runs_tab(folder: Path | None, page: gr.Blocks) -> None:
    """A menu of the runs that there are when the page is opened, and their report."""
    if folder is None:
        gr.HTML('<p class="note">Runs can be compared where the page was started with a folder of them.</p>')
        return
    with gr.Row():
        chosen = gr.Dropdown([], multiselect=True, label=f"Runs in {folder}", elem_id="runs", scale=4)
        button = gr.Button("Compare", variant="primary", elem_id="compare", min_width=90)
    shown = gr.HTML(elem_id="runs-report")

    def menu() -> tuple[Any, Any]:
        names = list(run_folders(folder))
        note = "" if names else note_html(f"There are no runs in {folder}.")
        return gr.Dropdown(choices=names, value=names[:FIRST_RUNS]), note

    @in_one_line(1)
    def compare(chosen: Any) -> str:
        return report_html(run_folders(folder), [str(one) for one in chosen or ()])

    page.load(menu, None, [chosen, shown], **ONCE)
    button.click(compare, chosen, shown, **ONCE)


def run_folders(folder: Path | None) -> dict[str, Path]:
    """The runs in a folder by name; where it is a study, the whole study comes first."""
    from softmax_rnn.study.folders import RESULTS, find_runs

    if folder is None or not folder.is_dir():
        return {}
    studies = [path.parent for path in sorted([*folder.glob(RESULTS), *folder.glob(f"*/{RESULTS}")])]
    places = [folder, *(path for path in sorted(folder.iterdir()) if path.is_dir())]
    runs: list[Path] = []
    for place in places:
        try:
            runs += find_runs(place)
        except InputError:
            continue
    known = dict.fromkeys([*studies, *runs])
    return {str(path.relative_to(folder)) if path != folder else path.name: path for path in list(known)[:MOST_RUNS]}


def report_html(folders: dict[str, Path], chosen: list[str]) -> str:
    """The report of the chosen runs in a frame that can reach nothing around it."""
    from softmax_rnn.report.page import page_html
    from softmax_rnn.report.study_page import study_page
    from softmax_rnn.study.folders import results_of

    if not chosen:
        raise InputError("runs: expected at least one, got none")
    unknown = [one for one in chosen if one not in folders]
    if unknown:
        raise InputError(f"runs: there is no run {unknown[0]!r} in this folder")
    page = page_html(study_page(results_of([folders[one] for one in chosen])))
    return (
        f'<iframe class="report" title="Report of the runs" sandbox="allow-scripts" srcdoc="{escape(page)}"></iframe>'
    )
