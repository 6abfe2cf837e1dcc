"""The command that trains."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from softmax_rnn.cli import complete
from softmax_rnn.cli.root import AsJson, print_json
from softmax_rnn.errors import InputError
from softmax_rnn.quick_imports import quick_imports


def train(
    config: Annotated[Path | None, typer.Option(help="A YAML file of settings; other options override it.")] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            help="A name from `softmax-rnn variants`, a spec's .json file, or parts: like=taylor_4,normaliser=none.",
            autocompletion=complete.variants,
        ),
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="nano, micro, small, large or large_depth.", autocompletion=complete.sizes)
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="shakespeare, kjv, stdlib; a file or folder; a hub name; mqar, selective_copy, induction.",
            autocompletion=complete.data,
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="Where the other settings come from: cpu or paper.", autocompletion=complete.recipes),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows per step, over all processes.")] = None,
    context: Annotated[int | None, typer.Option(help="Tokens per row.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the weights and of the order of the data.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="The peak learning rate.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, name=value; data.NAME and model.NAME reach inside. Repeatable."),
    ] = None,
    output: Annotated[Path, typer.Option(help="The folder of the run; the same command continues it.")] = Path(
        "runs/train"
    ),
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Processes on this machine that share each step (many nodes: torchrun)."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model on a text or a recall task; interrupted, the same command continues exactly.

    Examples:
      softmax-rnn train --variant linear_elu --steps 200 --output runs/elu
      softmax-rnn train --data mqar --set data.pairs=8 --set model.use_mlp=false
      softmax-rnn train --recipe cpu --size micro --data kjv --dry-run
      softmax-rnn train --processes 2 --output runs/two
      torchrun --nnodes=2 --nproc_per_node=8 -m softmax_rnn train --output runs/many
    """
    from softmax_rnn.attention.custom import variant_from
    from softmax_rnn.experiment.config import resolve
    from softmax_rnn.validation import read_settings

    given: dict[str, Any] = read_settings(config, "config") if config is not None else {}
    options = {
        "variant": variant and variant_from(variant),
        "size": size,
        "data": data,
        "recipe": recipe,
        "steps": steps,
        "batch_size": batch_size,
        "context": context,
        "seed": seed,
        "learning_rate": learning_rate,
    }
    given |= {name: value for name, value in options.items() if value is not None}
    for text in settings or []:
        put_text(given, text)
    resolved = resolve(given)
    if dry_run:
        _dry_run(resolved, as_json, processes)
        return
    if processes is not None and processes > 1:
        _launch(resolved, output, as_json, processes)
    _train(resolved, output, as_json)


def put_text(settings: dict[str, Any], text: str) -> None:
    """Set ``a.b=value``, the value read as YAML.

    >>> settings = {"data": "mqar"}
    >>> put_text(settings, "data.pairs=8"); settings
    {'data': {'source': 'mqar', 'pairs': 8}}
    """
    from softmax_rnn.parsing import parse_yaml
    from softmax_rnn.validation import put

    name, sign, value = text.partition("=")
    if not sign or not name:
        raise InputError(f"--set: expected name=value, got {text!r}")
    put(settings, name, parse_yaml(value, f"--set: the value of {name}"))


def _dry_run(config: Any, as_json: bool, processes: int | None) -> None:
    from softmax_rnn.experiment.run_plan import plan_run
    from softmax_rnn.report.terminal import print_plan
    from softmax_rnn.train.processes import this_share

    plan = asdict(plan_run(config, processes or this_share().processes))
    if this_share().rank != 0:
        return
    if as_json:
        print_json({"config": config.values(), "plan": plan})
    else:
        print(config.to_yaml())
        print_plan(plan)


def _launch(config: Any, output: Path, as_json: bool, processes: int) -> None:
    """Start the training processes, each as its own command, and end with their exit code."""
    from softmax_rnn.experiment.training import check_run
    from softmax_rnn.train.launch import launch_command

    check_run(config, output, processes)
    options = ["--json"] if as_json else []
    raise typer.Exit(launch_command("train", config.to_yaml(), output, options, processes))


def _train(config: Any, output: Path, as_json: bool) -> None:
    with quick_imports():
        from softmax_rnn.experiment.training import run_training
        from softmax_rnn.report.terminal import print_run
        from softmax_rnn.train.processes import this_share

    # Trackers print where they like; standard output is for the result.
    with redirect_stdout(sys.stderr):
        outcome = run_training(config, output, quiet=as_json)
    first = this_share().rank == 0
    if outcome.stopped_by is not None:
        if first:
            typer.echo(f"stopped by {outcome.stopped_by} at step {outcome.step}; the same command continues", err=True)
        raise typer.Exit(130)
    if not first or outcome.result is None:
        return
    if as_json:
        print_json({"folder": str(outcome.folder), "result": outcome.result})
    else:
        print_run(outcome.result, str(outcome.folder))
