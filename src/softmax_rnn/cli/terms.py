"""The command that looks inside a model: its Taylor terms, what truncation does, and what to do about it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from softmax_rnn.cli.root import AsJson, Model, TextFile, print_json, refuse_together


def terms(
    model: Model,
    text: TextFile = None,
    output: Annotated[Path, typer.Option(help="Folder for terms.json, report.html and figures/.")] = Path(
        "results/terms"
    ),
    orders: Annotated[int, typer.Option(help="Terms are measured up to this order.", min=1, max=1000)] = 40,
    tokens: Annotated[int, typer.Option(help="Tokens of the text for the statistics.", min=2)] = 512,
    context: Annotated[int, typer.Option(help="Tokens per window.", min=2)] = 512,
    epsilon: Annotated[float, typer.Option(help="Error of the attention output to find orders for.")] = 0.01,
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", help="Polynomials whose losses are measured; repeatable. All by default."),
    ] = None,
    loss_tokens: Annotated[int, typer.Option(help="Tokens of the text for the losses.", min=2)] = 256,
    tolerance: Annotated[float, typer.Option(help="Fraction of the loss by which a polynomial may differ.")] = 0.01,
    statistics_only: Annotated[
        bool, typer.Option("--statistics-only", help="Do not measure losses: seconds instead of minutes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure the Taylor terms of a causal language model: per layer and head, with losses, advice and a page.

    For a model with a window and a far state, the losses of each part alone are measured too.
    Statistics take seconds; losses take a pass over the text for each method and order, and for each single layer:
    minutes for smollm2 with one --method, more with all. Interrupted, the same command continues.

    Examples:
      softmax-rnn terms smollm2 --tokens 128 --statistics-only
      softmax-rnn terms smollm2 --text play.txt --output results/play
      softmax-rnn terms runs/softmax/final --method taylor --method box
    """
    from softmax_rnn.analysis.methods import METHODS
    from softmax_rnn.analysis.perplexity import read_text, token_ids
    from softmax_rnn.analysis.terms import check_arguments, most_steps, terms_record
    from softmax_rnn.console import plural, progress
    from softmax_rnn.files import folder_with, write_json
    from softmax_rnn.model.pretrained import load_pretrained, load_tokenizer
    from softmax_rnn.train.progress import duration
    from softmax_rnn.validation import check_output

    refuse_together(("--statistics-only", statistics_only), ("--method", methods))
    wanted = [] if statistics_only else list(methods or METHODS)
    check_arguments([0, 0], epsilon, tolerance, wanted)
    ours = folder_with("terms.json", "layers", "epsilon_advice", writes=("report.html", "figures"))
    check_output(output, folder=True, ours=ours)
    began = time.monotonic()
    content = read_text(text)
    ids = token_ids(load_tokenizer(model), content, max(tokens, loss_tokens) + 1)
    loaded = load_pretrained(model)
    with progress("terms", most_steps(loaded, len(ids[:tokens]), context, wanted)) as advance:
        value = terms_record(
            loaded,
            ids[:tokens],
            orders=orders,
            context=context,
            epsilon=epsilon,
            loss_ids=ids[: loss_tokens + 1],
            methods=wanted,
            tolerance=tolerance,
            keep=output / "cuts.jsonl",
            progress=advance,
        )
    value["text"] = "Python's documentation" if text is None else text.name
    files = [write_json(output / "terms.json", value)]
    from softmax_rnn.report.page import save_figures, write_page
    from softmax_rnn.report.terms_page import terms_page

    page = terms_page(value)
    files += [write_page(page, output / "report.html"), *save_figures(page, output / "figures", ("svg", "png"))]
    if as_json:
        print_json(value)
        return
    _print(value)
    places = ", ".join(str(path) for path in files[:2])
    print(f"results: {places} and {plural(len(files) - 2, 'figure')}, in {duration(time.monotonic() - began)}")


def _print(value: dict[str, Any]) -> None:
    shown = [layer["dominant_order"] for layer in value["layers"]]
    orders = f"{min(shown)} to {max(shown)} over the" if min(shown) < max(shown) else f"{shown[0]} in all"
    print(f"{value['model']}, {value['tokens']} tokens: dominant order {orders} layers")
    if value["window"] is not None:
        print(f"read in windows of {value['context']} tokens: a layer of this model sees {value['window']} keys")
    if "near_far" in value:
        from softmax_rnn.analysis.near_far import near_far_lines

        print("\n".join(near_far_lines(value["near_far"])))
    truncation = value.get("truncation")
    if truncation is not None:
        print(f"softmax loss {truncation['loss']:.4f}; lowest order within {100 * truncation['tolerance']:g} %:")
        for row in truncation["lowest"]:
            order = row["order"] if row["order"] is not None else f"none up to {row['last_order']}"
            print(f"  {row['title']:<50} {order}")
        print(
            f"advice for a loss of {truncation['loss'] + value['advice']['budget']:.4f}: {value['advice']['summary']}"
        )
    print(f"advice for an error of {value['epsilon']:g} with Taylor at 0: {value['epsilon_advice']['summary']}")
