"""The difference of two runs, studies or variants in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape

from softmax_rnn.console import OUT
from softmax_rnn.report.cells import NOTHING
from softmax_rnn.report.terminal import print_table


def print_comparison(result: Mapping[str, Any]) -> None:
    """The result of `softmax_rnn.study.compare.compare`."""
    (_print_specs if result["kind"] == "specs" else _print_runs)(result)


def _print_runs(result: Mapping[str, Any]) -> None:
    for sign, name, finished in zip("AB", result["names"], result["finished"], strict=True):
        OUT.print(f"{sign}: {name}{'' if finished else ' (not finished)'}", markup=False, highlight=False)
    _print_table("Settings that differ", result["settings"], "the settings are the same")
    if result.get("claims"):
        _print_table("Claims", result["claims"], "")
    names = {name: name.replace("_", " ") if result["kind"] == "runs" else name for name in result["metrics"]}
    measured = {names[name]: pair for name, pair in result["metrics"].items()}
    _print_table("Measured", measured, "nothing has been measured", difference=True)
    if result.get("specs"):
        _print_specs(result["specs"])


def _print_specs(result: Mapping[str, Any]) -> None:
    for sign, name, formula in zip("AB", result["names"], result["formulas"], strict=True):
        OUT.print(f"{sign}: {name}: {formula}", markup=False, highlight=False)
    _print_table("Parts that differ", result["parts"], "the parts are the same")
    if result["block"]:
        _print_table("The block around it", result["block"], "")
    OUT.print("The same function." if result["same_function"] else "Different functions.")


def _print_table(title: str, rows: Mapping[str, Sequence[Any]], nothing: str, *, difference: bool = False) -> None:
    if not rows:
        OUT.print(f"{title}: {nothing}.")
        return
    headings = ("", ">A", ">B", ">B − A", ">B / A") if difference else ("", "A", "B")
    lines = [
        [escape(text) for text in (name, _text(a), _text(b), *(_differences(a, b) if difference else []))]
        for name, (a, b) in rows.items()
    ]
    print_table(title, headings, lines)


def _differences(a: Any, b: Any) -> list[str]:
    if a is None or b is None:
        return [NOTHING, NOTHING]
    sign = "+" if b >= a else "−"
    return [f"{sign}{_text(abs(b - a))}", f"{b / a:.3f}" if a else NOTHING]


def _text(value: Any) -> str:
    """A value as it is read: whole numbers in full, others with as many digits as mean something.

    >>> _text(1.81812), _text(14536.03), _text(0.0005), _text(37088), _text(None)
    ('1.8181', '14,536', '0.0005', '37,088', '–')
    """
    match value:
        case None:
            return NOTHING
        case float() if abs(value) >= 1000:
            return f"{value:,.0f}"
        case float():
            return f"{value:g}" if abs(value) < 0.01 or value != value else f"{value:.4f}"
        case int() if not isinstance(value, bool):
            return f"{value:,}"
        case _:
            return str(value)
