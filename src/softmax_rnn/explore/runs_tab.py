"""The tab "Runs": a report that compares any runs in a folder."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from softmax_rnn.errors import InputError
from softmax_rnn.explore.page import ONCE, in_one_line

MOST_RUNS = 60


def runs_tab(folder: Path | None) -> None:
    """A menu of runs, and their report."""
    folders = run_folders(folder)
    if not folders:
        gr.HTML(f'<p class="note">There are no runs in <code>{escape(str(folder))}</code>.</p>')
        return
    with gr.Row():
        names = list(folders)
        chosen = gr.Dropdown(names, value=names[:4], multiselect=True, label="Runs", elem_id="runs", scale=4)
        button = gr.Button("Compare", variant="primary", elem_id="compare", min_width=90)
    shown = gr.HTML(elem_id="runs-report")

    @in_one_line(1)
    def compare(chosen: Any) -> str:
        return report_html(folders, [str(one) for one in chosen or ()])

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
