"""What the studies say, as a page: every results file of a study in benchmarks/, with its figures.

>>> "| Claim | Scale | Verdict |" in results_text()
True
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repository_links import ROOT
from variant_page import breakable

from softmax_rnn.report.claims_page import counts_text
from softmax_rnn.report.elements import ChartBlock, Prose, Section, TableBlock
from softmax_rnn.report.study_contrasts import effects_section, trends_section
from softmax_rnn.report.study_final import unstable_text
from softmax_rnn.report.study_words import beside_ours, machines_text
from softmax_rnn.report.tables import table_markdown
from softmax_rnn.study.result_file import is_results, read_results
from softmax_rnn.study.scoreboard import scoreboard

MEASURED = ROOT / "benchmarks"
ALONG = {
    "gap": ("Behind softmax in test loss", 3),
    "test_largest_score": ("Largest score", 1),
    "test_dominant_order": ("Order of the largest Taylor term", 1),
    "test_order_within": ("Order for 1 %", 1),
}
"""Curves that the page shows as tables, with the digits of their numbers."""


def results_text() -> str:
    """Every claim in the order of the paper with its verdict at each scale, then a section per study."""
    board = scoreboard(MEASURED)
    lines = ["## Every claim, at each scale", "", f"{counts_text(board['studies'])}.", ""]
    for study in board["studies"]:
        lines += [f"### {study['title']} {{#claims-{study['name'].replace('.', '-')}}}", "", *_claims(study), ""]
    saved = [(path, read_results(path)) for path in sorted(MEASURED.glob("*.json")) if is_results(path)]
    saved.sort(key=lambda one: (one[1]["study"]["name"] != "quick", one[1]["study"]["name"]))
    return "\n".join([*lines, *(line for path, results in saved for line in _study(path, results))])


def _claims(study: dict[str, Any]) -> Iterator[str]:
    yield from ("| Claim | Scale | Verdict | Numbers | What would decide it |", "|---|---|---|---|---|")
    before = None
    for one in study["claims"]:
        margin = f" ({one['margin']})" if one["margin"] else ""
        paper = f" *(in the paper: {one['paper']})*" if one["paper"] else ""
        claim = "" if one["claim"] == before else f"{one['claim']}{paper}"
        yield f"| {claim} | {one['scale']} | **{one['state']}**{margin} | {one['evidence']} | {one['needed']} |"
        before = one["claim"]


def _study(path: Path, results: dict[str, Any]) -> Iterator[str]:
    study, machine = results["study"], results["machine"]
    scale = study.get("scale") or "cpu"
    yield from (f"## {study['title']}{'' if scale == 'cpu' else f' ({scale})'}", "", study["asks"].strip(), "")
    yield from (f"*What was known:* {study['found'].strip()}", "")
    option = "" if scale == "cpu" else f" --scale {scale}"
    hours = sum(run["seconds"] or 0 for run in results["runs"]) / 3600
    yield f"`softmax-rnn study {study['name']}{option}`, {machine['date']}, {machines_text(results)},"
    finished, planned = sum(run["state"] == "finished" for run in results["runs"]), len(results["runs"])
    said = f"{planned} runs" if finished == planned else f"**unfinished, {finished} of {planned} runs**"
    yield f"{machine['cores']} cores, torch {machine['torch']}: {said}, {hours:.1f} hours of training."
    yield from (f"[All numbers](benchmarks/{path.name}).", "")
    for figure in sorted(MEASURED.glob(f"{path.stem}-*.svg")):
        yield from (f"![{study['title']}: {figure.stem.removeprefix(path.stem + '-')}](benchmarks/{figure.name})", "")
    yield from _final(results["summary"]["final"])
    yield from (unstable_text(results), "")
    for kind, (title, digits) in ALONG.items():
        yield from _along([row for row in results["summary"]["curves"] if row["kind"] == kind], title, digits)
    for section in (effects_section(results), trends_section(results)):
        yield from _section(section) if section else ()
    yield from _published(results)


def _along(rows: list[dict[str, Any]], title: str, digits: int) -> Iterator[str]:
    """A quantity on the way, a line per variant and setting, where there were more than a few tests."""
    rows = [row for row in rows if row["state"] == "finished"]
    tests = sorted({row["step"] for row in rows})
    if len(tests) < 6:
        return
    steps = [tests[round(part * (len(tests) - 1) / 5)] for part in range(6)]
    lines: dict[str, dict[int, dict[str, Any]]] = {}
    for row in rows:
        lines.setdefault(f"{breakable(row['variant'])} | {_setting(row)}", {})[row["step"]] = row
    yield from (f"{title}, by step of training:", "")
    yield f"| Variant | Setting | {' | '.join(map(str, steps))} |"
    yield f"|---|---|{'---|' * len(steps)}"
    for name, values in lines.items():
        yield f"| {name} | {' | '.join(_interval(values.get(step), digits=digits) for step in steps)} |"
    yield ""


def _section(section: Section) -> Iterator[str]:
    """The words and the first table of a section of the study's page."""
    tables = [block if isinstance(block, TableBlock) else block.table for block in section.blocks
              if isinstance(block, TableBlock | ChartBlock)]  # fmt: skip
    yield from (block.text for block in section.blocks if isinstance(block, Prose))
    yield from ("", table_markdown(tables[0]).partition("\n")[2].strip(), "")


def _published(results: dict[str, Any]) -> Iterator[str]:
    """Numbers of others with ours beside them."""
    rows = [row for one in results["published"] for row in beside_ours(results, one)]
    if not rows:
        return
    yield from ("Published by others, with other models, data and budgets:", "")
    yield from ("| Source (theirs) | What | Their value | Unit | Ours, at our scale |", "|---|---|---|---|---|")
    for row in rows:
        ours = f"{row['ours'].text} ({row['setting']})" if row["ours"] else ""
        yield f"| {row['source']} | {row['what']} | {row['value']:g} | {row['unit']} | {ours} |"
    yield ""


def _final(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield from ("| Variant | Setting | Seeds | Test loss | Behind softmax | Accuracy |", "|---|---|---|---|---|---|")
    for row in rows:
        cells = [breakable(row["variant"]), _setting(row), str(row["seeds"])]
        cells += [_interval(row["test_loss"]), _interval(row["gap"], "+"), _interval(row["test_accuracy"])]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _setting(row: dict[str, Any]) -> str:
    return ", ".join(f"{name.rsplit('.', 1)[-1]} {value}" for name, value in row["setting"].items()) or row["grid"]


def _interval(value: dict[str, Any] | None, sign: str = "", digits: int = 3) -> str:
    """A mean with half of its 95 % interval."""
    if value is None or value["mean"] is None:
        return ""
    half = "" if value["half"] is None else f" ± {value['half']:.{digits}f}"
    return f"{value['mean']:{sign}.{digits}f}{half}"
