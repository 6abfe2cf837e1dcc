"""Tables in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.markup import escape
from rich.table import Table

from softmax_rnn.console import OUT, about, plural
from softmax_rnn.report.elements import STATES

if TYPE_CHECKING:
    from softmax_rnn.bench.results import Results
    from softmax_rnn.bench.verify import Check, OrderCheck


def print_table(title: str, headings: Iterable[str], rows: Iterable[Sequence[str]], **look: Any) -> None:
    """A table; a column whose heading begins with ">" is right-aligned."""
    table = Table(title=title, **look)
    for heading in headings:
        justify = "right" if heading.startswith(">") else "left"
        table.add_column(heading.removeprefix(">"), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*row)
    OUT.print(table)


def print_variants(rows: Sequence[dict[str, Any]], head_dim: int, like: str | None = None) -> None:
    """A table of variants for each group, or one of the neighbours of a name; short names, full ones below them."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault("" if like else row["group"], []).append(row)
    for group, members in groups.items():
        title = f"like {like}, the nearest first" if like else group
        headings = ("name", "formula", f"state (d = {head_dim})", *(["differs in"] if like else []))
        cells = []
        for row in members:
            name = row["short"] if row["short"] == row["name"] else f"{row['short']}\n  [dim]{row['name']}[/]"
            numbers = row["state_numbers"]
            state = f"{numbers:,}" if numbers is not None else "grows"
            differs = [", ".join(row["differs_in"]).replace("_", " ")] if like else []
            cells.append([name, escape(row["formula"]), state, *differs])
        title = f"{title}: {plural(len(members), 'variant')}"
        print_table(title, headings, cells, title_justify="left", box=SIMPLE)
    OUT.print(f"{plural(len(rows), 'variant')}; softmax-rnn explain NAME shows what it is made of", highlight=False)


def print_families(families: Sequence[dict[str, str]]) -> None:
    """The names that take any number."""
    print_table("Families: any number for {n}", ("name", "what"), [(one["name"], one["note"]) for one in families])


def _number(value: float) -> str:
    return f"{value:.1e}"


def print_checks(checks: Sequence[Check], label: Callable[[str], str] = str) -> None:
    """One line per variant: the worst error of each form, outputs / gradients; failures in full below."""
    forms = list(dict.fromkeys(check.form for check in checks))
    for dtype in dict.fromkeys(check.dtype for check in checks):
        rows = []
        by_place = {(check.variant, check.form): check for check in checks if check.dtype == dtype}
        for variant in dict.fromkeys(check.variant for check in checks):
            cells = []
            for form in forms:
                check = by_place.get((variant, form))
                text = "–" if check is None else f"{_number(check.output_error)} / {_number(check.gradient_error)}"
                cells.append(text if check is None or check.passed else f"[bold red]{text}[/]")
            rows.append([label(variant), *cells])
        title = f"{dtype}: worst relative error of outputs / gradients against the literal formula"
        print_table(title, ("variant", *(f">{form}" for form in forms)), rows)
    failed = [check for check in checks if not check.passed]
    OUT.print(f"{len(checks) - len(failed)} of {len(checks)} checks passed")
    for check in failed:
        OUT.print(f"[bold red]failed[/] {check.variant}, {check.form}, {check.dtype}")


def print_orders(orders: Sequence[OrderCheck]) -> None:
    """Taylor order against the error."""
    radius = orders[0].radius if orders else 0.0
    title = f"Taylor order → largest error against softmax, in units of max |v| (scores within ±{radius:.2f})"
    bounds = ["none" if order.bound == float("inf") else _number(order.bound) for order in orders]
    rows = [(str(one.order), _number(one.measured), bound) for one, bound in zip(orders, bounds, strict=True)]
    print_table(title, (">order", ">measured", ">bound"), rows)


def print_bench(results: Results) -> None:
    """Claims with their limits, then the planner's choices."""
    rows = []
    for claim in results.claims:
        limit = "" if claim.limit is None else f"{'≤' if claim.at_most else '≥'} {claim.limit:g}"
        verdict = {True: "[green]yes[/]", False: "[bold red]no[/]", None: ""}[claim.holds]
        rows.append((claim.text, f"{claim.measured:.2f}", limit, verdict))
    print_table("Measured", ("what", ">measured", ">limit", "holds"), rows)
    if results.choices:
        headings = ("variant", "T", "D", "planned", "fastest", "planned / fastest")
        plans = [
            (one.variant, str(one.time), str(one.key_dim), one.planned, one.fastest, f"{one.loss:.2f}")
            for one in results.choices
        ]
        print_table("The planner's choice against the fastest form that was measured", headings, plans)


def print_conversion(report: dict[str, Any]) -> None:
    """The loss of a pretrained model after conversion to each variant."""
    title = f"{report['model']}: {report['tokens']} tokens, loss {report['loss']:.4f} as it is"
    rows = []
    for row in report["rows"]:
        cells = (_or_none(row["loss"], ".4f"), *(_or_none(row[name], ".4g") for name in ("perplexity", "ratio")))
        rows.append([row["variant"], *cells, str(row["non_positive"])])
    print_table(title, ("variant", ">loss", ">perplexity", ">× perplexity", ">row sums not positive"), rows)


def _facts(title: str, rows: Sequence[tuple[str, str]]) -> None:
    print_table(title, ("what", ">value"), rows, show_header=False)


def print_plan(plan: dict[str, Any]) -> None:
    """What a run would be."""
    rows = "a stream" if plan["train_rows"] is None else f"{plan['train_rows']:,} rows, seen {plan['passes']:.2f} times"
    if plan["data"].get("loaded") is False:
        rows = "on the hub, not loaded by a dry run; the vocabulary is assumed"
    _facts(
        "The run",
        [
            ("parameters", f"{plan['parameters']:,}"),
            ("tokens in the vocabulary", f"{plan['vocab_size']:,}"),
            ("steps × rows × tokens", f"{plan['steps']:,} × {plan['batch_size']} × {plan['context']}"),
            ("tokens seen", f"{plan['tokens']:,}"),
            ("train side", rows),
            ("memory, estimated", f"{plan['memory_bytes'] / 1e9:.2f} GB per process"),
            ("decoding state after a context", f"{plan['state_bytes']:,} bytes"),
            *(_on_card(one) for one in plan.get("on_cards", [])),
            *_in_the_paper(plan.get("paper_card_hours")),
        ],
    )


def _in_the_paper(hours: int | None) -> list[tuple[str, str]]:
    return [] if hours is None else [("the paper states", f"2 × A100 80 GB, at most {hours} card hours")]


def _on_card(one: dict[str, Any]) -> tuple[str, str]:
    """A card as a row: computed from its data sheet, and said so."""
    fits = "" if one["fits"] else ", more than it has"
    return (
        f"computed for {one['processes']} × {one['card']}",
        f"{one['memory_bytes'] / 1e9:.0f} GB each{fits}; {one['card_hours']:,.1f} card hours at half of the peak,"
        f" {one['card_hours_at_peak']:,.1f} at the peak",
    )


def _or_none(value: float | None, number_format: str) -> str:
    """A number, or a word where it is not finite and so was not written."""
    return "not finite" if value is None else format(value, number_format)


def print_run(result: dict[str, Any], folder: str) -> None:
    """The numbers of a finished run."""
    rows = [
        ("steps", f"{result['step']:,}"),
        ("parameters", f"{result['parameters']:,}"),
        ("train loss", _or_none(result["train_loss"], ".4f")),
        ("test loss", _or_none(result["test_loss"], ".4f")),
        ("test perplexity", _or_none(result["test_perplexity"], ".4g")),
        ("test accuracy", _or_none(result["test_accuracy"], ".4f")),
        ("tokens per second", f"{result['tokens_per_second']:,.0f}"),
        ("memory", f"{result['memory_bytes'] / 1e9:.2f} GB"),
        ("folder", folder),
    ]
    _facts(f"{result['variant']} {result['size']}, seed {result['seed']}", rows)


def print_study(name: str, title: str, asks: str, left: Sequence[str], runs: int, minutes: float) -> None:
    """What a study is about to do."""
    OUT.print(f"[bold]{escape(title)}[/]\n{escape(asks.strip())}")
    done = f", {runs - len(left)} of {runs} finished already" if len(left) < runs else ""
    time = f"{about(60 * minutes)} on two cores" if left else "nothing is left to run"
    OUT.print(f"{escape(name)}: {plural(len(left), 'run')}{done}; {time}", highlight=False)
    shown = 12
    for run in left[:shown]:
        OUT.print(f"  {run}", markup=False, highlight=False)
    if len(left) > shown:
        OUT.print(f"  … and {len(left) - shown} more")


def print_doctor(facts: dict[str, Any], packages: Sequence[tuple[str, str, str, str | None, bool, str]]) -> None:
    """The machine, then every package: there, too old or too new, missing; and the commands that put it right."""
    _facts("This machine", [(name, escape(str(value))) for name, value in facts.items()])
    rows = []
    for name, serves, wanted, version, fits, _ in packages:
        colour = "green" if fits else "bold red" if serves == "required" else "yellow"
        state = f"{version or 'missing'}{'' if fits or not version else ', unfit'}"
        rows.append((name, serves, wanted, f"[{colour}]{state}[/]"))
    print_table("Packages", ("package", "for", "asked for", "installed"), rows)
    for install in dict.fromkeys(install for *_, fits, install in packages if not fits):
        OUT.print(f"to install what is missing: {install}", markup=False, highlight=False, soft_wrap=True)


def print_check(result: dict[str, Any]) -> None:
    """What a second training of some runs gave."""
    rows = []
    for row in result["rows"]:
        same, known = row["is"] == row["was"], row["is"] is not None
        change = "none" if same else f"{row['is'] - row['was']:+.2e}" if known else "not finite"
        rows.append((escape(row["run"]), row["metric"].replace("_", " "), repr(row["was"]), repr(row["is"]), change))
    print_table("Trained again", ("run", "metric", "in the file", "now", "difference"), rows)
    for name, (then, now) in result["machine"].items():
        OUT.print(f"{name}: {then} in the file, {now} here", markup=False, highlight=False)
    if not result["moved"]:
        count = len(result["rows"])
        OUT.print(f"{plural(count, 'number')}, {'' if count == 1 else 'all '}the same to the last digit.")


def print_claims(claims: Sequence[dict[str, Any]]) -> None:
    """The verdicts of a study."""
    if not claims:
        return
    rows = []
    for claim in claims:
        state = claim["state"]
        margin = f"\n{escape(claim['margin'])}" if claim.get("margin") else ""
        verdict = f"[{STATES[state].colour}]{state}[/]{margin}"
        rows.append((escape(claim["claim"]), verdict, escape(claim["evidence"])))
    print_table("Claims at this scale", ("claim", "verdict", "evidence"), rows, show_lines=True)
