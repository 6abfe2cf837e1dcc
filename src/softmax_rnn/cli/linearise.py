"""The command that converts a trained model to another attention and trains the difference away."""

from __future__ import annotations

import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from softmax_rnn.cli import complete
from softmax_rnn.cli.root import AsJson, print_json
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from softmax_rnn.linearise.settings import LineariseConfig

_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def linearise(
    model: Annotated[
        str | None, typer.Argument(help="A folder with a saved model, a hub name (owner/name), or smollm2.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="The attention: a name, a spec's .json file, or parts: like=taylor_2,output_norm=rms.",
            autocompletion=complete.variants,
        ),
    ] = None,
    stages: Annotated[
        str | None, typer.Option(help="Some of calibrate,transfer,distil,tune; the first three by default.")
    ] = None,
    text: Annotated[list[Path] | None, typer.Option(help="A text file to train on; repeatable.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="A corpus, folder or hub name to train on; stdlib by default; repeatable.",
            autocompletion=complete.data,
        ),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(help="A text to measure on but not to train on; repeatable.", autocompletion=complete.data),
    ] = None,
    tokens: Annotated[str | None, typer.Option(help="Tokens that the stages train on, such as 50k or 1M.")] = None,
    context: Annotated[int | None, typer.Option(help="Tokens per row.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows per step, over all processes.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the data order.")] = None,
    keep_loss: Annotated[
        str | None, typer.Option(help="Convert only as many layers as keep the loss within this, such as 3%.")
    ] = None,
    state_bytes: Annotated[
        str | None,
        typer.Option(help="Convert only as many layers as bring the decoding state within this, such as 100M."),
    ] = None,
    convert_layers: Annotated[
        int | None, typer.Option(help="Convert this many layers, the ones that cost least.")
    ] = None,
    store_logits: Annotated[
        int | None,
        typer.Option(help="Distil from this many most likely tokens per position, stored once for all conversions."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="name=value: window, sinks or order of the target; distil.learning_rate and the like; repeatable.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A YAML file of settings; options on the command line override it.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for the new model; the same command resumes it.")] = Path(
        "models/linearised"
    ),
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes on this machine that share each step.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the settings and steps, and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Convert a trained model to another attention, in stages: calibrate, transfer, distil.

    Interrupted, the same command continues exactly. The folder is a model for `from_pretrained`, with a report.

    Examples:
      softmax-rnn linearise smollm2 --to softmax_l2 --tokens 50k
      softmax-rnn linearise runs/mine/final --to taylor_2 --text my.txt
      softmax-rnn linearise smollm2 --to near_far --set window=64 --set order=2
      softmax-rnn linearise smollm2 --to taylor_2 --keep-loss 3%
    """
    from softmax_rnn.cli.train import put_text
    from softmax_rnn.linearise.settings import resolve
    from softmax_rnn.validation import read_settings

    given: dict[str, Any] = read_settings(config, "config") if config is not None else {}
    sources = [*(str(path) for path in text or ()), *(data or ())]
    options = {
        "model": model,
        "to": to,
        "stages": None if stages is None else [name.strip() for name in stages.split(",")],
        "data": sources or None,
        "measure": measure or None,
        "tokens": None if tokens is None else count(tokens, "--tokens"),
        "context": context,
        "batch_size": batch_size,
        "seed": seed,
        "keep_loss": None if keep_loss is None else part(keep_loss, "--keep-loss"),
        "state_bytes": None if state_bytes is None else count(state_bytes, "--state-bytes"),
        "convert_layers": convert_layers,
        "store_logits": store_logits,
    }
    given |= {name: value for name, value in options.items() if value is not None}
    for one in settings or []:
        put_text(given, one)
    for name, option in (("model", "MODEL"), ("to", "--to")):
        if name not in given:
            raise InputError(f"{option} is missing; see softmax-rnn linearise --help")
    for path in text or ():
        if not path.is_file():
            raise InputError(f"--text: {path} cannot be read: no such file")
    resolved = resolve(given)
    if dry_run:
        _dry_run(resolved, as_json)
    elif processes is not None and processes > 1:
        _launch(resolved, output, as_json, processes)
    else:
        _run(resolved, output, as_json)


def count(text: str, option: str) -> int:
    """A number with an optional suffix.

    >>> count("1M", "--tokens"), count("2.5k", "--tokens"), count("400", "--tokens")
    (1000000, 2500, 400)
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)([kKmMgG]?)", text.strip().replace(",", ""), re.ASCII)
    number = round(float(match[1]) * _SIZES[match[2].lower()]) if match else 0
    if number < 1:
        raise InputError(f"{option}: expected a positive number such as 50000, 50k or 1M, got {text!r}")
    return number


def part(text: str, option: str) -> float:
    """A fraction, written as a percentage or a number.

    >>> part("3%", "--keep-loss"), part("0.03", "--keep-loss")
    (0.03, 0.03)
    """
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,9})?)\s*(%?)", text.strip(), re.ASCII)
    number = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not number:
        raise InputError(f"{option}: expected a positive fraction such as 3% or 0.03, got {text!r}")
    return number


def _dry_run(config: LineariseConfig, as_json: bool) -> None:
    from softmax_rnn.console import plural
    from softmax_rnn.hub import SHORT_NAMES, check_folder, check_name
    from softmax_rnn.study.checks import check_source

    if config.model not in SHORT_NAMES:
        check_name(config.model)
        check_folder(config.model)
    for text in (*config.data, *config.measure):
        check_source(text.source)
    steps = {name: config.steps(name) for name in config.training}
    if as_json:
        print_json({"config": config.values(), "steps": steps})
        return
    print(config.to_yaml())
    for name, number in steps.items():
        print(f"{name}: {plural(number, 'step')}")


def _launch(config: LineariseConfig, output: Path, as_json: bool, processes: int) -> None:
    from softmax_rnn.linearise.run import check_folder
    from softmax_rnn.train.launch import launch_command

    check_folder(config, output)
    for name in config.training:
        config.train_settings(name).rows_of_process(processes)
    options = ["--json"] if as_json else []
    raise typer.Exit(launch_command("linearise", config.to_yaml(), output, options, processes))


def _run(config: LineariseConfig, output: Path, as_json: bool) -> None:
    from softmax_rnn.linearise.run import linearise as run
    from softmax_rnn.report.linearise_page import linearise_page, print_linearised
    from softmax_rnn.report.page import write_page
    from softmax_rnn.train.processes import this_share

    with redirect_stdout(sys.stderr):
        outcome = run(config, output, quiet=as_json)
    if outcome.stopped_by is not None:
        if this_share().rank == 0:
            typer.echo(f"stopped by {outcome.stopped_by}; the same command continues", err=True)
        raise typer.Exit(130)
    if outcome.record is None:
        return
    page = write_page(linearise_page(outcome.record), output / "report.html")
    if as_json:
        print_json(outcome.record)
        return
    print_linearised(outcome.record)
    print(f"model and report: {output}, {page}")
