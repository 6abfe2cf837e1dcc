"""The harness's command with our model registered: ``python -m softmax_rnn.evaluation --model softmax_rnn …``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from lm_eval.__main__ import cli_evaluate

import softmax_rnn.evaluation.harness  # noqa: F401  registers the model
from softmax_rnn.errors import InputError, RunError, first_line, unknown_name

SHOWN = 200
"""So much of a message of the harness is shown."""


def evaluate(arguments: Sequence[str]) -> None:
    """What ``lm_eval`` does with these arguments; a wrong one is an `InputError`, any other failure a `RunError`."""
    sys.argv = ["lm_eval", *arguments]
    with _one_line():
        cli_evaluate()


@contextmanager
def _one_line() -> Iterator[None]:
    def error(self: argparse.ArgumentParser, message: str) -> NoReturn:
        raise InputError(f"eval: {message}")

    before, argparse.ArgumentParser.error = argparse.ArgumentParser.error, error
    try:
        yield
    except (InputError, RunError):
        raise
    except ValueError as problem:
        text = _short(problem)
        missing = text.partition("Tasks not found: ")[2]
        if missing:
            from lm_eval.tasks import TaskManager

            raise unknown_name("task", missing.split(",")[0].strip(), TaskManager().all_tasks) from problem
        raise InputError(f"eval: {text}") from problem
    except Exception as problem:
        raise RunError(f"eval: {type(problem).__name__}: {_short(problem)}") from problem
    finally:
        argparse.ArgumentParser.error = before


def _short(problem: Exception) -> str:
    text = first_line(problem, "no message")
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


if __name__ == "__main__":
    try:
        evaluate(sys.argv[1:])
    except (InputError, RunError) as problem:
        print(problem, file=sys.stderr)
        sys.exit(2 if isinstance(problem, InputError) else 1)
