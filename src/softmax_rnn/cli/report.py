"""Commands about what runs have measured: report, compare, watch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from softmax_rnn.cli import complete
from softmax_rnn.cli.root import AsJson, print_json, refuse_together


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS", help="Folders of runs or studies, one saved result, or a folder of saved ones."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(help="Where to write; by default the study's folder, or runs/report.", show_default=False),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="Also save the results as one small JSON file (500 kB at most).", show_default=False),
    ] = None,
    figures: Annotated[bool, typer.Option(help="Also write every chart as SVG, PNG and PDF.")] = True,
    as_json: AsJson = False,
) -> None:
    """Make the report from run folders, finished or not: report.html, results.json, tables, figures.

    Verdicts are decided again by the rules in the study's file. A folder of saved results gives one page with every
    claim, its verdict at each scale and what would decide the rest.

    Examples:
      softmax-rnn report runs/quick
      softmax-rnn report runs/softmax runs/elu --output runs/both
      softmax-rnn report runs/quick --save benchmarks/quick.json
      softmax-rnn report benchmarks
    """
    from softmax_rnn.files import folder_with, write_json
    from softmax_rnn.report.study_page import study_page, write_files, write_report
    from softmax_rnn.study.folders import RESULTS, results_of
    from softmax_rnn.study.result_file import save_results
    from softmax_rnn.study.scoreboard import is_scoreboard, scoreboard
    from softmax_rnn.validation import check_output

    if len(folders) == 1 and is_scoreboard(folders[0]):
        refuse_together(("a folder of saved results", True), ("--save", save))
        _claims(scoreboard(folders[0]), output or Path("runs/claims"), as_json)
        return
    study = len(folders) == 1 and (folders[0] / RESULTS).is_file()
    target = output or (folders[0] if study else Path("runs/report"))
    check_output(target, folder=True)
    if save is not None:
        check_save(save)
    results = results_of(folders)
    ours = folder_with(RESULTS, "study", "machine", writes=("report.html", "figures", "tables"))
    check_output(target, folder=True, ours=ours)
    write_json(target / RESULTS, results, indent=None)
    page = study_page(results)
    path = write_report(page, target)
    if save is not None:
        save_results(results, save)
    if as_json:
        print_json(results)
    else:
        print(f"report: {path}", flush=True)
    write_files(page, target, figures=figures)


def _claims(board: dict[str, Any], target: Path, as_json: bool) -> None:
    from softmax_rnn.files import folder_with, write_json
    from softmax_rnn.report.claims_page import claims_page
    from softmax_rnn.report.study_page import write_files, write_report
    from softmax_rnn.validation import check_output

    check_output(target, folder=True, ours=folder_with("claims.json", "studies", writes=("report.html", "tables")))
    page = claims_page(board)
    write_json(target / "claims.json", board)
    path = write_report(page, target)
    write_files(page, target, figures=False)
    if as_json:
        print_json(board)
    else:
        print(f"{page.subtitle}\nreport: {path}", flush=True)


def check_save(path: Path) -> None:
    """Refuse a place for results that is not a JSON file, or that holds something that no study has written."""
    from softmax_rnn.errors import InputError
    from softmax_rnn.study.result_file import is_results
    from softmax_rnn.validation import check_output

    if path.suffix != ".json":
        raise InputError(f"save: expected a file that ends in .json, got {path}")
    check_output(path, folder=False, what="save")
    if path.exists() and not is_results(path):
        raise InputError(f"save: {path} exists and is not a study's results; choose another name")


def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A", help="The folder of a run or of a study, or a variant.", autocompletion=complete.variants
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="Another of the same kind.", autocompletion=complete.variants)],
    as_json: AsJson = False,
) -> None:
    """Print how two runs (settings, losses, speed), two studies (claims) or two variants (formulas) differ.

    Examples:
      softmax-rnn compare softmax gated_softmax_no_gate_L2norm_nodivS_noclamp
      softmax-rnn compare runs/softmax runs/elu
    """
    from softmax_rnn.study.compare import compare as compare_two

    result = compare_two(a, b)
    if as_json:
        print_json(result)
        return
    from softmax_rnn.report.comparison import print_comparison

    print_comparison(result)


def watch(
    folder: Annotated[Path, typer.Argument(metavar="STUDY", help="The folder of a study, or of runs.")],
    port: Annotated[int, typer.Option(help="The port on this machine; 0 takes a free one.", min=0, max=65535)] = 8765,
) -> None:
    """Show the report in the browser while the study runs; it updates itself. Ctrl-C ends it.

    Examples:
      softmax-rnn watch runs/quick
      softmax-rnn watch runs/quick --port 0
    """
    from softmax_rnn.study.serve import serve

    serve(folder, port, lambda address: print(f"{folder}: {address} (Ctrl-C ends it)", flush=True))
