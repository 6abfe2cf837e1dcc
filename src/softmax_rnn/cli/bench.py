"""Commands that measure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from softmax_rnn.cli.root import AsJson, Device, Group, Model, TextFile, add, print_json, refuse_together
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from softmax_rnn.bench.results import Task

bench_app = typer.Typer(
    help="""Measure speed and memory, as ratios to peers in the same run.

    Examples:
      softmax-rnn bench attention --quick
      softmax-rnn bench decode --output results/decode
    """,
    cls=Group,
)

Quick = Annotated[bool, typer.Option("--quick", help="A minute or two instead of a quarter of an hour.")]
Only = Annotated[list[str] | None, typer.Option(help="Only tasks whose titles have these words; repeatable.")]


def attention(
    quick: Quick = False,
    field: Annotated[bool, typer.Option("--field", help="Only the claims about decays and write rules.")] = False,
    all_memory: Annotated[bool, typer.Option("--all-memory", help="Only the memory claim, for every variant.")] = False,
    only: Only = None,
    device: Device = "cpu",
    output: Annotated[Path, typer.Option(help="Folder for results.json and the chart.")] = Path("results/attention"),
    as_json: AsJson = False,
) -> None:
    """Time and memory of attention against the platform's softmax and the materialised formula.

    Examples:
      softmax-rnn bench attention --quick
      softmax-rnn bench attention --device cuda
      softmax-rnn bench attention --only "forward at T=16384"
      softmax-rnn bench attention --field --output results/field
      softmax-rnn bench attention --all-memory --output results/memory
    """
    from softmax_rnn.bench.attention import full_tasks, memory_tasks, quick_tasks
    from softmax_rnn.bench.field import field_tasks
    from softmax_rnn.report.bench_charts import attention_chart

    refuse_together(("--quick", quick), ("--field", field), ("--all-memory", all_memory))
    refuse_together(("--device cuda", device == "cuda"), ("--field", field), ("--all-memory", all_memory))
    if device == "cuda":
        from softmax_rnn.bench.card import attention_tasks

        _bench(_some(list(attention_tasks(quick)), only), None, output, as_json, device)
        return
    chosen = memory_tasks if all_memory else field_tasks if field else quick_tasks if quick else full_tasks
    _bench(_some(list(chosen()), only), None if only else attention_chart, output, as_json, device)


def model(
    quick: Quick = False,
    device: Device = "cpu",
    output: Annotated[Path, typer.Option(help="Folder for results.json and the chart.")] = Path("results/model"),
    as_json: AsJson = False,
) -> None:
    """Training step of a whole model against transformers' Llama with SDPA, same sizes and weights.

    Examples:
      softmax-rnn bench model --quick
      softmax-rnn bench model --output results/model
    """
    from softmax_rnn.bench.model_step import model_tasks
    from softmax_rnn.report.bench_charts import model_chart

    _bench(list(model_tasks(quick)), model_chart, output, as_json, device)


def decode(
    quick: Quick = False,
    only: Only = None,
    device: Device = "cpu",
    output: Annotated[Path, typer.Option(help="Folder for results.json and the chart.")] = Path("results/decode"),
    as_json: AsJson = False,
) -> None:
    """Time of a new token and bytes of the state against the length of the context.

    Examples:
      softmax-rnn bench decode --quick
      softmax-rnn bench decode --only "a step beside its two products" --json
    """
    from softmax_rnn.bench.decode import decode_tasks
    from softmax_rnn.report.bench_charts import decode_chart

    _bench(_some(list(decode_tasks(quick)), only), None if only else decode_chart, output, as_json, device)


def train(
    quick: Quick = False,
    device: Device = "cpu",
    output: Annotated[Path, typer.Option(help="Folder for results.json.")] = Path("results/train"),
    as_json: AsJson = False,
) -> None:
    """The training loop against a bare PyTorch loop, tokenising, and the time to the first step.

    Examples:
      softmax-rnn bench train --quick
      softmax-rnn bench train --output results/train
    """
    from softmax_rnn.bench.card import check_device
    from softmax_rnn.bench.train import train_tasks

    check_device(device)
    _bench(list(train_tasks(quick, device == "cuda")), None, output, as_json, "cpu")


def structure(
    quick: Quick = False,
    speed: Annotated[bool, typer.Option("--speed", help="Only the speed: a minute.")] = False,
    memory: Annotated[bool, typer.Option("--memory", help="Only the bytes of states: some minutes.")] = False,
    output: Annotated[Path, typer.Option(help="Folder for results.json and the chart.")] = Path("results/structure"),
    as_json: AsJson = False,
) -> None:
    """Speed of windows and far states, and bytes of decoding states from 1k to 64k tokens.

    Examples:
      softmax-rnn bench structure --quick
      softmax-rnn bench structure --memory --output results/structure
    """
    from softmax_rnn.bench.structure import memory_tasks, speed_tasks
    from softmax_rnn.report.bench_charts import state_chart

    tasks = [] if memory and not speed else list(speed_tasks(quick))
    tasks += [] if speed and not memory else list(memory_tasks(quick))
    _bench(tasks, None if speed and not memory else state_chart, output, as_json, "cpu")


def state(
    model: Model,
    text: TextFile = None,
    tokens: Annotated[int, typer.Option(help="Tokens of the text, read as one context.", min=2)] = 1024,
    width: Annotated[
        list[int] | None,
        typer.Option(help="Width of the window, and of kept keys; repeatable. 32, 64, 128 by default."),
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for results.json and the chart.")] = Path("results/state"),
    as_json: AsJson = False,
) -> None:
    """Loss of a pretrained model against the bytes of its decoding state: windows, far states, kept keys; no training.

    Examples:
      softmax-rnn bench state smollm2 --tokens 256 --width 32
      softmax-rnn bench state smollm2 --text play.txt --output results/play
    """
    from softmax_rnn.bench.state_loss import WIDTHS, state_loss_tasks
    from softmax_rnn.report.bench_charts import state_loss_chart
    from softmax_rnn.validation import read_whole

    if text is not None:
        read_whole(text, "text")
    widths = tuple(dict.fromkeys(width)) if width else WIDTHS
    if width and max(widths) > tokens:
        raise InputError(f"width: expected at most the {tokens:,} tokens that are read, got {max(widths):,}")
    tasks = list(state_loss_tasks(model, text, tokens, widths))
    _bench(tasks, state_loss_chart, output, as_json, "cpu")


for command in (attention, model, decode, structure, state, train):
    add(bench_app, command, "study")


def _some(tasks: list[Task], only: list[str] | None) -> list[Task]:
    """The tasks that were asked for."""
    chosen = [task for task in tasks if not only or any(words in task.title for words in only)]
    if not chosen:
        titles = " | ".join(task.title for task in tasks)
        raise InputError(f"only: no task has {' or '.join(map(repr, only or ()))} in its title: {titles}")
    return chosen


def _bench(
    tasks: list[Task], chart: Callable[[dict[str, Any]], Any] | None, output: Path, as_json: bool, device: str
) -> None:
    from softmax_rnn.bench.card import measured_on
    from softmax_rnn.bench.results import run
    from softmax_rnn.console import progress
    from softmax_rnn.files import folder_with, write_json
    from softmax_rnn.report.figures import save_chart
    from softmax_rnn.report.terminal import print_bench
    from softmax_rnn.validation import check_output

    ours = folder_with("results.json", "rows", "claims", writes=("chart.svg", "chart.png", "chart.html"))
    check_output(output, folder=True, ours=ours)
    with measured_on(device), progress("bench", len(tasks)) as advance:
        results = run(tasks, advance)
    value = results.to_json()
    files = [write_json(output / "results.json", value)]
    if chart is not None and (value["rows"] or value["memory"]):
        files += save_chart(chart(value), output, "chart")
    if as_json:
        print_json(value)
    else:
        print_bench(results)
        print("results: " + ", ".join(str(path) for path in files))
