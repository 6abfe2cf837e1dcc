"""Commands about models: generate, convert-report, eval."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from softmax_rnn.cli import complete
from softmax_rnn.cli.root import AsJson, JsonFile, Model, TextFile, print_json


def generate(
    model: Model,
    prompt: Annotated[str, typer.Argument(help="The text to continue.")],
    variant: Annotated[
        str | None,
        typer.Option(
            help="Convert it first: a variant, a spec's .json file, or parts.", autocompletion=complete.variants
        ),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="At most this many new tokens.", min=1)] = 64,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.", min=0)] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Sample among the k likeliest tokens.", min=1)] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample among the likeliest tokens of this probability.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    state_in: Annotated[Path | None, typer.Option(help="Continue from a state saved by --state-out.")] = None,
    state_out: Annotated[Path | None, typer.Option(help="Save the state here, to be continued later.")] = None,
    as_json: AsJson = False,
) -> None:
    """Continue a text token by token, then print the speed and the size of the decoding state.

    Examples:
      softmax-rnn generate smollm2 "The capital of France is"
      softmax-rnn generate smollm2 "Once" --variant softmax --state-out once.state
      softmax-rnn generate runs/elu/final "To be" --temperature 0.8 --top-k 20
    """
    from softmax_rnn.attention.custom import variant_from
    from softmax_rnn.console import plural
    from softmax_rnn.model.generating import Sampling, generate_command

    result = generate_command(
        model,
        prompt,
        variant=variant and variant_from(variant),
        max_new_tokens=max_new_tokens,
        sampling=Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed),
        state_in=state_in,
        state_out=state_out,
        on_text=(lambda text: None) if as_json else (lambda text: print(text, end="", flush=True)),
    )
    facts = {
        "tokens": len(result.tokens),
        "prompt_tokens": result.prompt_tokens,
        "prefill_seconds": result.prefill_seconds,
        "tokens_per_second": result.tokens_per_second,
        "state_bytes": result.state_bytes,
        "context": result.context,
    }
    if as_json:
        print_json({"model": model, "variant": variant, "prompt": prompt, "text": result.text, **facts})
        return
    print()
    print(
        f"{plural(len(result.tokens), 'token')}, {result.tokens_per_second:.1f} tokens/s after a prefill of"
        f" {result.prompt_tokens} in {result.prefill_seconds:.2f} s; state {result.state_bytes:,} bytes at context"
        f" {result.context}",
        file=sys.stderr,
    )


def convert_report(
    model: Model = "smollm2",
    variants: Annotated[
        list[str] | None,
        typer.Option("--variant", help="A variant to convert to; repeatable.", autocompletion=complete.variants),
    ] = None,
    text: TextFile = None,
    tokens: Annotated[int, typer.Option(help="How many tokens of the text to read.", min=2)] = 512,
    context: Annotated[int, typer.Option(help="Tokens per window.", min=2)] = 512,
    output: JsonFile = None,
    as_json: AsJson = False,
) -> None:
    """Convert a pretrained model to other attentions and report its loss on a text.

    Examples:
      softmax-rnn convert-report smollm2 --variant softmax --variant taylor_4
      softmax-rnn convert-report smollm2 --text play.txt --tokens 256
    """
    from softmax_rnn.analysis.perplexity import DEFAULT_VARIANTS, conversion_report
    from softmax_rnn.attention.custom import variant_from
    from softmax_rnn.files import finite, json_with, write_json
    from softmax_rnn.report.terminal import print_conversion
    from softmax_rnn.validation import check_output

    if output is not None:
        check_output(output, folder=False, ours=json_with("model", "rows"))
    wanted = [variant_from(name) for name in variants or DEFAULT_VARIANTS]
    report = conversion_report(model, wanted, text, tokens=tokens, context=context, progress=not as_json)
    value = finite(asdict(report))
    if output is not None:
        write_json(output, value)
    if as_json:
        print_json(value)
    else:
        print_conversion(value)


def evaluate(context: typer.Context) -> None:
    """Run the lm-evaluation-harness with the model `softmax_rnn`; takes the arguments of lm_eval.

    Examples:
      softmax-rnn eval ls tasks
      softmax-rnn eval run --model softmax_rnn --tasks lambada_openai \\
        --model_args pretrained=runs/elu/final
    """
    from softmax_rnn.errors import InputError

    if not context.args:
        raise InputError("eval: expected the arguments of lm_eval, such as run or ls; see softmax-rnn eval --help")
    from softmax_rnn.evaluation.__main__ import evaluate as run

    run(context.args)
