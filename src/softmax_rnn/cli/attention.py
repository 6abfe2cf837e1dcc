"""Commands about attention itself: variants, explain, verify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from softmax_rnn.cli import complete
from softmax_rnn.cli.root import AsJson, Device, JsonFile, print_json

if TYPE_CHECKING:
    from softmax_rnn.bench.verify import Check, OrderCheck


def variants(
    like: Annotated[
        str | None,
        typer.Option(help="The variants nearest to this one, with what differs.", autocompletion=complete.variants),
    ] = None,
    family: Annotated[
        str | None, typer.Option(help="Only a group, such as paper or decays, or a family, such as taylor.")
    ] = None,
    state: Annotated[str | None, typer.Option(help="Only a fixed state, or only a growing one.")] = None,
    part: Annotated[
        list[str] | None, typer.Option(help="Only with this part, such as cosine or forget_gate; may be repeated.")
    ] = None,
    head_dim: Annotated[int, typer.Option(help="Dimension of a head, for the size of its state.", min=1)] = 64,
    as_json: AsJson = False,
) -> None:
    """List attentions by name and group: formula and state; `explain NAME` shows the rest.

    Examples:
      softmax-rnn variants
      softmax-rnn variants --like taylor_2 --state fixed
      softmax-rnn variants --part cosine --part rms --json
    """
    from softmax_rnn.attention.custom import variant_from
    from softmax_rnn.attention.search import names
    from softmax_rnn.attention.variants import VARIANTS

    like = None if like is None else variant_from(like)
    matches = names(like=like, family=family, state=state, part=part or ())
    rows = [_variant_row(name, head_dim, like) for name in matches]
    families = [{"name": one.name, "note": one.note} for one in VARIANTS.families]
    if as_json:
        print_json({"head_dim": head_dim, "variants": rows, "families": families})
        return
    from softmax_rnn.report.terminal import print_families, print_variants

    print_variants(rows, head_dim, like)
    if (like, family, state, part) == (None, None, None, None):
        print_families(families)


def _variant_row(name: str, head_dim: int, like: str | None) -> dict[str, Any]:
    from softmax_rnn.attention.algebra import diff, same_names, state_numbers
    from softmax_rnn.attention.formula import formula
    from softmax_rnn.attention.variants import VARIANTS

    row = VARIANTS.row(name)
    values = {
        "name": name,
        "formula": formula(row.spec),
        "parameters": list(row.spec.tensors),
        "state_numbers": state_numbers(row.spec, head_dim, head_dim),
        "same_as": [other for other in same_names(row.spec) if other != name],
        "group": row.group,
        "short": VARIANTS.short(name),
        "source": row.source,
        "note": row.note,
        "block": dict(row.block),
        "spec": row.spec.to_dict(),
    }
    return values if like is None else values | {"differs_in": list(diff(VARIANTS[like], row.spec))}


def explain(
    name: Annotated[
        str,
        typer.Argument(
            help="A variant such as taylor_4, a spec's .json file, or parts: like=taylor_4,normaliser=none.",
            autocompletion=complete.variants,
        ),
    ],
    time: Annotated[int, typer.Option(help="Sequence length, which decides the form.", min=1)] = 1024,
    head_dim: Annotated[int, typer.Option(help="Dimension of a head.", min=1)] = 64,
    heads: Annotated[int, typer.Option(help="Number of heads.", min=1)] = 16,
    train: Annotated[bool, typer.Option(help="Plan for a training step instead of a forward pass.")] = False,
    as_json: AsJson = False,
) -> None:
    """Explain a variant: its formula, what cancels, its other names, its state, which form runs and why.

    Examples:
      softmax-rnn explain softmax
      softmax-rnn explain taylor_4 --time 16384 --head-dim 32 --train
      softmax-rnn explain gated_softmax_out_gate_L2norm_nodivS_noclamp
    """
    from dataclasses import asdict

    from softmax_rnn.attention.custom import variant_from
    from softmax_rnn.attention.explain import explain as explain_spec
    from softmax_rnn.attention.plan import Situation
    from softmax_rnn.attention.variants import VARIANTS

    name = VARIANTS.full(variant_from(name))
    spec = VARIANTS[name]
    situation = Situation(1, heads, heads, time, time, head_dim, head_dim, needs_grad=train)
    explanation, row = explain_spec(spec, situation), VARIANTS.row(name)
    facts = {"short": VARIANTS.short(name), "group": row.group, "source": row.source, "block": dict(row.block)}
    if as_json:
        print_json({"name": name, **facts, "spec": spec.to_dict(), **asdict(explanation)})
        return
    other = f" ({facts['short']})" if facts["short"] != name else ""
    print(f"{name}{other}, {row.group}{': ' + row.source if row.source else ''}")
    print(explanation)
    if row.block:
        print(f"\nblock of a model: {', '.join(f'{option} {value}' for option, value in row.block.items())}")


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Variants, .json files of specs, or parts; all variants by default.",
            autocompletion=complete.variants,
        ),
    ] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
    output: JsonFile = None,
) -> None:
    """Check variants, in every form that can compute them, against the literal formula: outputs and gradients.

    Examples:
      softmax-rnn verify
      softmax-rnn verify softmax taylor_2 --device cuda
      softmax-rnn verify linear_elu --output results/verify.json
    """
    from softmax_rnn.attention.custom import variant_from
    from softmax_rnn.attention.variants import VARIANTS
    from softmax_rnn.bench.card import check_device
    from softmax_rnn.bench.verify import check_orders
    from softmax_rnn.bench.verify import verify as run_checks
    from softmax_rnn.console import progress
    from softmax_rnn.files import json_with, write_json
    from softmax_rnn.report.terminal import print_checks, print_orders
    from softmax_rnn.validation import check_output

    check_device(device)
    if output is not None:
        check_output(output, folder=False, ours=json_with("machine", "checks"))
    wanted = [variant_from(name) for name in names or VARIANTS]
    for name in wanted:
        VARIANTS[name]  # an unknown name is reported before any work
    with progress("verify", len(wanted)) as advance:
        checks = run_checks(wanted, advance, device)
    orders = list(check_orders())
    value = _verify_json(checks, orders)
    if output is not None:
        write_json(output, value)
    if as_json:
        print_json(value)
    else:
        print_checks(checks, VARIANTS.short)
        print_orders(orders)
        if output is not None:
            print(f"results: {output}")
    if not all(check.passed for check in checks):
        raise typer.Exit(1)


def _verify_json(checks: list[Check], orders: list[OrderCheck]) -> dict[str, Any]:
    from dataclasses import asdict

    from softmax_rnn.machine import describe

    return {
        "machine": describe(),
        "checks": [asdict(check) | {"passed": check.passed} for check in checks],
        "orders": [asdict(order) for order in orders],
        "passed": all(check.passed for check in checks),
    }
