"""The command line: reads arguments, calls the library, prints tables. Heavy imports wait until a command runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from softmax_rnn.version import __version__

if TYPE_CHECKING:
    from softmax_rnn.bench.attention import Results
    from softmax_rnn.bench.verify import Check, OrderCheck

app = typer.Typer(
    name="softmax-rnn",
    help="Softmax attention as a recurrent neural network: look at it, take it apart, verify and measure it.",
    add_completion=True,
    pretty_exceptions_enable=False,
)
bench_app = typer.Typer(help="Measure speed and memory, as ratios to peers in the same run.")
app.add_typer(bench_app, name="bench")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def _print_json(value: Any) -> None:
    from softmax_rnn.report.files import finite

    print(json.dumps(finite(value), indent=2, ensure_ascii=False))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"softmax-rnn {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Softmax attention as a recurrent neural network: look at it, take it apart, verify and measure it."""


@app.command()
def variants(
    head_dim: Annotated[int, typer.Option(help="Dimension of a head, for the size of its state.", min=1)] = 64,
    as_json: AsJson = False,
) -> None:
    """List every attention by name: formula, parameters, state, and the names that are the same function.

    Example: softmax-rnn variants --head-dim 32
    """
    from softmax_rnn.attention.algebra import same_names, state_numbers
    from softmax_rnn.attention.formula import formula
    from softmax_rnn.attention.variants import VARIANTS

    rows = []
    for name in VARIANTS:
        row = VARIANTS.row(name)
        rows.append(
            {
                "name": name,
                "formula": formula(row.spec),
                "parameters": list(row.spec.tensors),
                "state_numbers": state_numbers(row.spec, head_dim, head_dim),
                "same_as": [other for other in same_names(row.spec) if other != name],
                "source": row.source,
                "note": row.note,
                "spec": row.spec.to_dict(),
            }
        )
    families = [{"name": family.name, "note": family.note} for family in VARIANTS.families]
    if as_json:
        _print_json({"head_dim": head_dim, "variants": rows, "families": families})
        return
    from softmax_rnn.report.terminal import print_families, print_variants

    print_variants(rows, head_dim)
    print_families(families)


@app.command()
def explain(
    name: Annotated[str, typer.Argument(help="A variant, such as softmax or taylor_4.")],
    time: Annotated[int, typer.Option(help="Positions, for the choice of the form.", min=1)] = 1024,
    head_dim: Annotated[int, typer.Option(help="Dimension of a head.", min=1)] = 64,
    heads: Annotated[int, typer.Option(help="Number of heads.", min=1)] = 16,
    train: Annotated[bool, typer.Option(help="Plan for a training step instead of a forward pass.")] = False,
    as_json: AsJson = False,
) -> None:
    """Explain a variant: its formula, what cancels, its other names, its state, which form runs and why.

    Example: softmax-rnn explain gated_softmax_out_gate_L2norm_nodivS_noclamp
    """
    from dataclasses import asdict

    from softmax_rnn.attention.explain import explain as explain_spec
    from softmax_rnn.attention.plan import Situation
    from softmax_rnn.attention.variants import VARIANTS

    spec = VARIANTS[name]
    situation = Situation(1, heads, heads, time, time, head_dim, head_dim, needs_grad=train)
    found = explain_spec(spec, situation)
    if as_json:
        _print_json({"name": name, "spec": spec.to_dict(), **asdict(found)})
        return
    print(found)


@app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Variants to check; all when left out.")] = None,
    as_json: AsJson = False,
    output: Annotated[Path | None, typer.Option(help="Also save the JSON to this file.")] = None,
) -> None:
    """Check every variant in every form that it allows against the literal formula: outputs and gradients.

    Example: softmax-rnn verify softmax taylor_2
    """
    from softmax_rnn.attention.variants import VARIANTS
    from softmax_rnn.bench.verify import check_orders
    from softmax_rnn.bench.verify import verify as run_checks
    from softmax_rnn.report.files import write_json
    from softmax_rnn.report.terminal import print_checks, print_orders, progress

    wanted = names or list(VARIANTS)
    for name in wanted:
        VARIANTS[name]  # an unknown name is told before any work
    with progress("verify", len(wanted)) as advance:
        checks = run_checks(wanted, advance)
    orders = list(check_orders())
    value = _verify_json(checks, orders)
    if output is not None:
        write_json(output, value)
    if as_json:
        _print_json(value)
    else:
        print_checks(checks)
        print_orders(orders)
        if output is not None:
            print(f"results: {output}")
    if not all(check.passed for check in checks):
        raise typer.Exit(1)


def _verify_json(checks: list[Check], orders: list[OrderCheck]) -> dict[str, Any]:
    from dataclasses import asdict

    from softmax_rnn.bench.machine import describe

    return {
        "machine": describe(),
        "checks": [asdict(check) | {"passed": check.passed} for check in checks],
        "orders": [asdict(order) for order in orders],
        "passed": all(check.passed for check in checks),
    }


@bench_app.command("attention")
def bench_attention(
    quick: Annotated[bool, typer.Option("--quick", help="A minute instead of a quarter of an hour.")] = False,
    all_memory: Annotated[bool, typer.Option("--all-memory", help="Only the memory claim, for every variant.")] = False,
    output: Annotated[Path, typer.Option(help="Folder for results.json and the chart.")] = Path("results/attention"),
    as_json: AsJson = False,
) -> None:
    """Time and memory of attention against the platform's softmax and the materialised formula.

    Example: softmax-rnn bench attention --quick
    """
    from softmax_rnn.bench.attention import full_tasks, memory_tasks, quick_tasks, run
    from softmax_rnn.report.terminal import print_bench, progress

    tasks = list(memory_tasks() if all_memory else quick_tasks() if quick else full_tasks())
    with progress("bench", len(tasks)) as advance:
        results = run(tasks, advance)
    files = _save_bench(results, output)
    if as_json:
        _print_json(results.to_json())
    else:
        print_bench(results)
        print("results: " + ", ".join(str(path) for path in files))


def _save_bench(results: Results, output: Path) -> list[Path]:
    from softmax_rnn.report.charts import bench_chart, save_chart
    from softmax_rnn.report.files import write_json

    value = results.to_json()
    files = [write_json(output / "results.json", value)]
    if value["rows"]:
        files += save_chart(bench_chart(value), output, "chart")
    return files
