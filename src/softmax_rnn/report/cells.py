"""Cells of a table: one value, shown in words, sorted as a number, written to a file in full.

A cell is text, a whole number, a number, yes or no, nothing, or a :class:`Cell`, text that stands for a number.

>>> shown(1.23456, Column("loss", ".3f")), shown(-2, Column("n")), shown(None, Column("n"))
('1.235', '−2', '–')
>>> in_csv("=HYPERLINK(0)"), in_csv(-1.5), in_csv("-1.5"), in_csv("−x"), in_csv(Cell("−0.5 ± 0.1", -0.5, 0.1))
("'=HYPERLINK(0)", '-1.5', '-1.5', "'-x", '-0.5')
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

NOTHING = "–"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# What a spreadsheet takes for the start of a formula.
_FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")


@dataclass(frozen=True, slots=True)
class Cell:
    """Text with the number that it stands for, and half of the number's interval, which files keep in a column."""

    text: str
    value: float | None = None
    half: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, Python's format for its numbers, and whether readers can choose among its values."""

    title: str
    format: str = ""
    select: bool = False
    unit: str = ""
    """Of the numbers in files, where the shown texts have units of their choice."""


Value = str | int | float | bool | Cell | None


def shown(value: Value, column: Column) -> str:
    """The text that a reader sees."""
    match value:
        case None:
            return NOTHING
        case Cell():
            return value.text
        case bool():
            return "yes" if value else "no"
        case float() if not math.isfinite(value):
            return _signs(f"{value}").replace("inf", "∞")
        case int() | float():
            return _signs(format(value, column.format or (".4g" if isinstance(value, float) else "")))
        case _:
            return value


def sort_key(value: Value) -> str | None:
    """The number a cell sorts by, in full; None for text and for what has no order, which comes last."""
    number = value.value if isinstance(value, Cell) else value
    if isinstance(number, str) or number is None or number != number:
        return None
    return repr(float(number)).replace("inf", "Infinity")


def in_csv(value: Value) -> str:
    """The text in a CSV file: numbers in full, and no text that a spreadsheet would run as a formula."""
    if isinstance(value, Cell):
        value = value.text if value.value is None else value.value
    match value:
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return repr(value)
        case None:
            return ""
    text = value.replace("−", "-")
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def is_number(value: Value) -> bool:
    """Whether a cell is right-aligned, like numbers."""
    return sort_key(value) is not None and not isinstance(value, bool)


def _signs(text: str) -> str:
    """A typographic minus, which is not a formula to a spreadsheet either."""
    return text.replace("-", "−")
