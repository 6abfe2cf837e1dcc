"""The root of the command line, and what all commands share."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from softmax_rnn.version import __version__

app = typer.Typer(name="softmax-rnn", add_completion=True, pretty_exceptions_enable=False)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def print_json(value: Any) -> None:
    """A value on standard output, for other programs."""
    from softmax_rnn.files import finite

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
    """Softmax attention as a recurrent neural network: look at it, take it apart, verify and measure it.

    Examples:
      softmax-rnn study quick --dry-run
      softmax-rnn explain taylor_4
      softmax-rnn train --variant linear_elu --data shakespeare --steps 200
    """
