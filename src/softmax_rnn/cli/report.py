"""Commands about what runs have found: report, compare, watch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softmax_rnn.cli.app import AsJson, print_json


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUNS", help="Folders of runs or of studies.")],
    output: Annotated[
        Path | None,
        typer.Option(help="Where to write; the study's own folder, or runs/report when left out.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the report from run folders, finished or not: report.html, results.json, figures, tables.

    Examples:
      softmax-rnn report runs/quick
      softmax-rnn report runs/softmax runs/elu --output runs/both
    """
    from softmax_rnn.files import folder_with, write_json
    from softmax_rnn.report.study_page import write_report
    from softmax_rnn.study.folders import RESULTS, results_of
    from softmax_rnn.validation import check_output

    results = results_of(folders)
    study = len(folders) == 1 and (folders[0] / RESULTS).is_file()
    target = output or (folders[0] if study else Path("runs/report"))
    ours = folder_with(RESULTS, "study", "machine", writes=("report.html", "figures", "tables"))
    check_output(target, folder=True, ours=ours)
    write_json(target / RESULTS, results)
    page = write_report(results, target)
    if as_json:
        print_json(results)
    else:
        print(f"report: {page}")


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="The folder of a run, or a variant.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    as_json: AsJson = False,
) -> None:
    """Print the difference of two runs (settings, losses, speed) or of two variants (formulas, parts).

    Examples:
      softmax-rnn compare softmax gated_softmax_no_gate_L2norm_nodivS_noclamp
      softmax-rnn compare runs/softmax runs/elu
    """
    from softmax_rnn.study.compare import compare as compare_two

    found = compare_two(a, b)
    if as_json:
        print_json(found)
        return
    from softmax_rnn.report.comparison import print_comparison

    print_comparison(found)


def watch(
    folder: Annotated[Path, typer.Argument(metavar="STUDY", help="The folder of a study, or of runs.")],
    port: Annotated[int, typer.Option(help="The port on this machine; 0 takes a free one.", min=0, max=65535)] = 8765,
) -> None:
    """Show the report in the browser while the study runs; it changes by itself. Ctrl-C ends it.

    Examples:
      softmax-rnn watch runs/quick
      softmax-rnn watch runs/quick --port 0
    """
    from softmax_rnn.study.serve import serve

    serve(folder, port, lambda address: print(f"{folder}: {address} (Ctrl-C ends it)", flush=True))
