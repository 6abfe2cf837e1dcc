"""The command line as a page: every command with its examples, arguments and options, read from the program itself.

>>> "## softmax-rnn train" in commands_text()
True
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer.main

from softmax_rnn.cli import app

EXAMPLES = "Examples:\n"


def commands_text() -> str:
    """Every command, those of a group after the group."""
    return "\n".join(_lines(typer.main.get_command(app), "softmax-rnn", 2))


def _lines(command: Any, name: str, level: int) -> Iterator[str]:
    inner = getattr(command, "commands", {})
    yield from (f"{'#' * level} {name}", "")
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    yield from (line for text in paragraphs if not text.startswith(EXAMPLES) for line in (" ".join(text.split()), ""))
    examples = [inspect.cleandoc(text.removeprefix(EXAMPLES)) for text in paragraphs if text.startswith(EXAMPLES)]
    if examples:
        yield from ("```sh", *examples, "```", "")
    rows = [_row(one) for one in command.params if one.name != "help" and not getattr(one, "hidden", False)]
    if rows:
        yield from ("| Argument or option | Meaning | Default |", "|---|---|---|", *rows, "")
    for word, one in inner.items():
        yield from _lines(one, f"{name} {word}", level if level == 2 and name == "softmax-rnn" else level + 1)


def _row(parameter: Any) -> str:
    is_argument = parameter.param_type_name == "argument"
    names = [parameter.name.upper()] if is_argument else [*parameter.opts, *parameter.secondary_opts]
    meaning = " ".join((parameter.help or "").split()).replace("|", "\\|")
    return f"| {', '.join(f'`{name}`' for name in names)} | {meaning} | {_default(parameter)} |"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if value is None or value is False or callable(value):
        return ""
    return f"`{value}`"
