"""Commands about studies."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from softmax_rnn.cli import complete
from softmax_rnn.cli.root import AsJson, print_json, refuse_together
from softmax_rnn.errors import InputError, unknown_name

if TYPE_CHECKING:
    from softmax_rnn.study.execution import StudyRun
    from softmax_rnn.study.runner import Runner

RUNNERS = ("local", "ray")
DEFAULT_SCALE = "cpu"


def study(
    name: Annotated[
        str,
        typer.Argument(
            help="quick, sec4.1-denominator, …, or the path of a YAML file.", autocompletion=complete.studies
        ),
    ],
    new_file: Annotated[Path | None, typer.Argument(help="With `new`: the file to write.", show_default=False)] = None,
    output: Annotated[Path | None, typer.Option(help="The folder of the study; runs/NAME by default.")] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="cpu; overnight: more seeds and steps on two cores; paper: the paper's models and data.",
            autocompletion=complete.scales,
        ),
    ] = DEFAULT_SCALE,
    jobs: Annotated[
        int | None,
        typer.Option(help="Runs at the same time, sharing the cores; one per core, up to 4, by default.", min=1),
    ] = None,
    runner: Annotated[str, typer.Option(help="local, or ray: a Ray cluster (the extra ray).")] = "local",
    max_runs: Annotated[int, typer.Option(help="Refuse a study with more runs than this.", min=1)] = 2000,
    check: Annotated[
        Path | None, typer.Option(help="Train a sample of a saved result's runs again and say what changed.")
    ] = None,
    continue_from: Annotated[
        Path | None,
        typer.Option(help="Count what a saved result, or any in a folder, has finished: a study on another machine."),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="With --check: how many runs, evenly spaced in the file; 3 by default.", min=1)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a study: its runs, then a report. What is finished is not repeated; what was interrupted continues.

    Examples:
      softmax-rnn study quick --dry-run
      softmax-rnn study sec4.1-denominator --jobs 2 --output runs/denominator
      softmax-rnn study quick --check benchmarks/2026-11-18-quick.json --runs 3
      softmax-rnn study quick --continue-from half.json
      softmax-rnn study new my-study.yaml
    """
    if runs is not None and check is None:
        raise InputError("--runs: only for --check; a study runs as many as its file says")
    refuse_together(("--check", check), ("--jobs", jobs), ("--runner ray", runner == "ray"))
    refuse_together(("--check", check), ("--continue-from", continue_from))
    if name == "new":
        refuse_together(("study new", True), ("--dry-run", dry_run), ("--output", output), ("--check", check))
        _new(new_file or Path("my-study.yaml"))
        return
    if new_file is not None:
        raise InputError(f"study: expected one study, got {name!r} and {str(new_file)!r}; run them one by one")
    if runner not in RUNNERS:
        raise unknown_name("runner", runner, RUNNERS)
    from softmax_rnn.study.checks import check_count
    from softmax_rnn.study.definition import load_study
    from softmax_rnn.validation import check_output

    short, loaded = load_study(name)
    check_count(loaded, scale, max_runs)  # before anything heavy is imported
    folder = output or Path("runs") / (short if check is None else f"{short}-check")
    check_output(folder, folder=True)
    if check is not None:
        results = _saved(short, check, scale)
        if dry_run:
            _print_sample(short, results, runs or 3, as_json)
        else:
            _check(results, runs or 3, folder, as_json)
        return
    from softmax_rnn.report.terminal import print_study
    from softmax_rnn.study.checks import check_data
    from softmax_rnn.study.execution import StudyRun

    command = _command(name, scale, output, continue_from)
    whole = StudyRun(short, loaded, scale, folder, command, continue_from)
    check_data(whole.left)
    if as_json and dry_run:
        print_json({"study": short, "minutes": whole.expected_minutes(), "runs": [run.name for run in whole.left]})
        return
    if not as_json:
        print_study(short, loaded.title, loaded.asks, [run.label for run in whole.left], whole.count,
                    whole.expected_minutes())  # fmt: skip
    if dry_run:
        return
    _carry_out(whole, _runner(runner, jobs), as_json)


def _saved(name: str, path: Path, scale: str) -> dict[str, Any]:
    """The saved results of this study."""
    from softmax_rnn.study.result_file import read_results

    results = read_results(path)
    of = results["study"]
    if of.get("name") != name:
        raise InputError(f"check: {path} is the result of {of.get('name')}, not of {name}")
    if scale not in (DEFAULT_SCALE, of.get("scale")):
        raise InputError(f"check: {path} is the result of the scale {of.get('scale')}, not of {scale}")
    return results


def _print_sample(name: str, results: dict[str, Any], count: int, as_json: bool) -> None:
    from softmax_rnn.study.recheck import sample

    names = [entry["name"] for entry in sample(results["runs"], count)]
    if as_json:
        print_json({"study": name, "runs": names})
    else:
        print("would be trained again:", *names, sep="\n  ")


def _check(results: dict[str, Any], count: int, folder: Path, as_json: bool) -> None:
    from softmax_rnn.console import plural, say
    from softmax_rnn.report.terminal import print_check
    from softmax_rnn.study.recheck import recheck

    result = recheck(results, count, folder, say)
    if as_json:
        print_json(result)
    else:
        print_check(result)
    if result["moved"]:
        typer.echo(f"check: {plural(len(result['moved']), 'number')} moved", err=True)
        raise typer.Exit(1)


def _carry_out(whole: StudyRun, runner: Runner, as_json: bool) -> None:
    from softmax_rnn.report.study_page import study_page, write_files, write_report
    from softmax_rnn.report.terminal import print_claims
    from softmax_rnn.study.live import StudyTable

    try:
        with StudyTable(whole.name, whole.runs, whole.left, lambda: runner.jobs) as table:
            results = whole.carry_out(runner, table.watch)
    except KeyboardInterrupt:
        typer.echo(f"stopped; the same command continues: {whole.command}", err=True)
        raise
    page = study_page(results)
    path = write_report(page, whole.output)
    if as_json:
        print_json(results)
    else:
        print_claims(results["claims"])
        print(f"report: {path}", flush=True)
    write_files(page, whole.output)
    for run, error in whole.errors.items():
        typer.echo(f"failed: {run}: {error}", err=True)
    if whole.errors:
        raise typer.Exit(1)


def _runner(name: str, jobs: int | None) -> Runner:
    if name == "ray":
        from softmax_rnn.study.ray_runner import RayRunner

        return RayRunner()
    from softmax_rnn.study.runner import LocalRunner, default_jobs

    return LocalRunner(jobs or default_jobs())


def _command(name: str, scale: str, output: Path | None, continue_from: Path | None) -> str:
    words = ["softmax-rnn", "study", name]
    words += ["--scale", scale] if scale != DEFAULT_SCALE else []
    words += ["--output", str(output)] if output is not None else []
    words += ["--continue-from", str(continue_from)] if continue_from is not None else []
    return shlex.join(words)


def _new(path: Path) -> None:
    from softmax_rnn.files import write_text
    from softmax_rnn.study.definition import STUDIES
    from softmax_rnn.validation import check_output

    if path.suffix not in (".yaml", ".yml"):
        raise InputError(f"study new: expected a file that ends in .yaml, got {path}")
    if path.exists():
        raise InputError(f"study new: {path} exists already; choose another name")
    check_output(path, folder=False, what="study new")
    template = (STUDIES / "template" / "template.yaml").read_text(encoding="utf-8")
    text = template.replace("study NAME", f"study {shlex.quote(str(path))}", 1)
    write_text(path, text)
    print(f"{path} is a small study that runs as it is: softmax-rnn study {shlex.quote(str(path))}")
