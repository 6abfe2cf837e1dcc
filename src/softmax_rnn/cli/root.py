"""The root of the command line, and what all commands share."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from softmax_rnn.errors import InputError
from softmax_rnn.version import __version__

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

Device = Annotated[str, typer.Option(help="cpu, or cuda for a CUDA or ROCm card.")]
Model = Annotated[str, typer.Argument(help="A folder with a saved model, a hub name (owner/name), or smollm2.")]
TextFile = Annotated[Path | None, typer.Option(help="A text file; Python's documentation by default.")]
JsonFile = Annotated[Path | None, typer.Option(help="Also save the JSON to this file.")]


def _without_types_of_flags(parameters: list[Any]) -> list[Any]:
    """A flag takes no value, so the help shows none beside it."""
    for one in parameters:
        if getattr(one, "is_flag", False):
            one.metavar = ""
    return parameters


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))


class Group(TyperGroup):
    """A group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, as the help shows them."""
        return _without_types_of_flags(super().get_params(ctx))


app = typer.Typer(name="softmax-rnn", add_completion=True, pretty_exceptions_enable=False, cls=Group)


def add(group: typer.Typer, command: Callable[..., None], extra: str | None = None, **how: Any) -> None:
    """Put a command into a group; where the extra that it needs is missing, it says how to install it."""

    @functools.wraps(command)
    def checked(*arguments: Any, **options: Any) -> None:
        if extra is not None:
            from softmax_rnn.installation import need

            need(extra, how.get("name") or command.__name__)
        command(*arguments, **options)

    group.command(cls=_Command, **how)(checked)


def refuse_together(*given: tuple[str, object]) -> None:
    """Refuse options of which only one can be followed; None and False mean that an option was left out.

    >>> refuse_together(("--quick", True), ("--field", False))
    >>> refuse_together(("--quick", True), ("--field", True))
    Traceback (most recent call last):
    softmax_rnn.errors.InputError: --field: cannot be combined with --quick; leave one of them out
    """
    names = [name for name, value in given if value not in (None, False)]
    if len(names) > 1:
        raise InputError(f"{names[1]}: cannot be combined with {names[0]}; leave one of them out")


def print_json(value: Any) -> None:
    """A value on standard output, for other programs."""
    from softmax_rnn.files import finite

    every_letter = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(finite(value), indent=2, ensure_ascii=not every_letter))


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
