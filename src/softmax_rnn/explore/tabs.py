"""What the tabs share: one page's session, errors as one line, how events are wired, and a list for their menus."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import gradio as gr

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError, RunError
from softmax_rnn.explore.views import problem_html

LIVE: dict[str, Any] = {
    "show_progress": "hidden",
    "trigger_mode": "always_last",
    "api_visibility": "private",
    "queue": False,
}
"""Slider events: while one is being handled, only the latest of those that follow is kept."""
ONCE: dict[str, Any] = {"show_progress": "minimal", "trigger_mode": "once", "api_visibility": "private"}
"""Button events."""
NARROWEST = 300
"""Pixels of a chart or a menu with long names; where there are fewer, as on a phone, they stand below each other."""


def playable() -> list[str]:
    """The rows of the table that need nothing but q, k and v."""
    return [name for name in VARIANTS if not VARIANTS[name].tensors]


def session(request: gr.Request | None) -> str:
    """The page that sent the request."""
    return getattr(request, "session_hash", None) or "no page"


def in_one_line(outputs: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Bad input becomes one line in the first output, and the others stay as they are; the server keeps running."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def answer(error: Exception) -> Any:
            message = problem_html(str(error))
            return message if outputs == 1 else (message, *(gr.skip() for _ in range(outputs - 1)))

        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def stream(*arguments: Any, **named: Any) -> Any:
                try:
                    yield from function(*arguments, **named)
                except (InputError, RunError) as error:
                    yield answer(error)

            return stream

        @functools.wraps(function)
        def once(*arguments: Any, **named: Any) -> Any:
            try:
                return function(*arguments, **named)
            except (InputError, RunError) as error:
                return answer(error)

        return once

    return decorate


def whole(value: Any, name: str) -> int:
    """A whole number from a control; a page that was tampered with may send anything."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) > 1e9:
        raise InputError(f"{name}: expected a whole number, got {str(value)[:40]!r}")
    return int(value)
