"""Wrong uses that the parser of the command line finds, in our words: which option, what came, what to do."""

from __future__ import annotations

from typing import Any

from softmax_rnn.errors import shown, unknown_name


def usage_text(error: Any) -> str:
    """One line for an error of typer. Its classes are private, so they are told apart by the names click gave them."""
    context: Any = error.ctx
    where = f"; see {context.command_path} --help" if context else ""
    match type(error).__name__:
        case "NoSuchOption":
            known = [name for one in context.command.params for name in one.opts if name.startswith("--")]
            return str(unknown_name("option", error.option_name, [*known, "--help"]))
        case "BadParameter":
            return _bad_value(error)
    text = error.format_message().rstrip(".")
    if text == "Missing command":
        text = f"{text}: {', '.join(context.command.list_commands(context))}"
    return text if text.endswith("?") else f"{text}{where}"


def _bad_value(error: Any) -> str:
    """What the value of an option should be, and what it is; typer itself does not say the latter."""
    from pydantic import ValidationError

    from softmax_rnn.validation import expectation

    if not isinstance(error.__cause__, ValidationError) or error.param is None:
        return error.format_message()
    came = error.__cause__.errors()[0]["input"]
    name = max(error.param.opts, key=len)
    return f"{name}: expected {expectation(error.message)}, got {shown(came)}"
