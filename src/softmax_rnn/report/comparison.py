"""The difference of two runs or specs in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from softmax_rnn.report.cells import NOTHING
from softmax_rnn.report.terminal import OUT


def print_comparison(found: Mapping[str, Any]) -> None:
    """What `softmax_rnn.study.compare.compare` has found."""
    (_print_runs if found["kind"] == "runs" else _print_specs)(found)


def _print_runs(found: Mapping[str, Any]) -> None:
    for sign, name, finished in zip("AB", found["names"], found["finished"], strict=True):
        OUT.print(f"{sign}: {name}{'' if finished else ' (not finished)'}", markup=False, highlight=False)
    _print_table("Settings that differ", found["settings"], "the settings are the same")
    _print_table("Measured", found["metrics"], "nothing has been measured", difference=True)
    if found["specs"]:
        _print_specs(found["specs"])


def _print_specs(found: Mapping[str, Any]) -> None:
    for sign, name, formula in zip("AB", found["names"], found["formulas"], strict=True):
        OUT.print(f"{sign}: {name}: {formula}", markup=False, highlight=False)
    _print_table("Parts that differ", found["parts"], "the parts are the same")
    if found["block"]:
        _print_table("The block around it", found["block"], "")
    OUT.print("The same function." if found["same_function"] else "Different functions.")


def _print_table(title: str, rows: Mapping[str, Sequence[Any]], nothing: str, *, difference: bool = False) -> None:
    if not rows:
        OUT.print(f"{title}: {nothing}.")
        return
    table = Table(title=title)
    for heading in ("", "A", "B", *(["B − A", "B / A"] if difference else [])):
        table.add_column(heading, overflow="fold", justify="right" if difference and heading else "left")
    for name, (a, b) in rows.items():
        cells = [name.replace("_", " ") if difference else name, _text(a), _text(b)]
        table.add_row(*map(escape, [*cells, *(_differences(a, b) if difference else [])]))
    OUT.print(table)


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
