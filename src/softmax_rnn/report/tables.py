"""Tables as files: CSV with numbers in full, Markdown and LaTeX as they are shown.

>>> from softmax_rnn.report.elements import Column, TableBlock
>>> table = TableBlock("losses", ["variant", Column("loss", ".2f")], [["a|b_1", 1.818]], "Demo & caption")
>>> print(table_csv(table), end="")
variant,loss
a|b_1,1.818
>>> print(table_markdown(table), end="")
Demo & caption
<BLANKLINE>
| variant | loss |
|:--|--:|
| a\\|b\\_1 | 1.82 |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from softmax_rnn.errors import InputError, unknown_name
from softmax_rnn.files import write_whole
from softmax_rnn.report.cells import NOTHING, Value, in_csv, is_number, shown
from softmax_rnn.report.elements import TableBlock

_MATHS = (
    "±pm ×times ·cdot ≤leq ≥geq ≈approx ≠neq →to ∞infty √surd ∑sum ∏prod ∈in αalpha βbeta γgamma δdelta εvarepsilon"
    " ηeta θtheta κkappa λlambda μmu νnu πpi ρrho σsigma τtau φvarphi χchi ψpsi ωomega ΓGamma ΔDelta ΘTheta ΛLambda"
    " ΠPi ΣSigma ΦPhi ΨPsi ΩOmega"
)
_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"$\\{name}$" for sign, name in re.findall(r"(\S)(\w+)", _MATHS)},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "−": "$-$",
    "–": "--",
    "—": "---",
}


def table_csv(table: TableBlock) -> str:
    """Numbers in full; text that a spreadsheet would run as a formula is made harmless."""
    lines = [[head.title for head in table.heads], *table.rows]
    return "".join(",".join(_quoted(in_csv(value)) for value in line) + "\n" for line in lines)


def table_markdown(table: TableBlock) -> str:
    """A table of GitHub's Markdown, its caption above it."""
    heads = [_markdown(head.title) for head in table.heads]
    rule = ["--:" if right else ":--" for right in right_columns(table)]
    rows = [[_markdown(text) for text in row] for row in shown_rows(table)]
    lines = [f"| {' | '.join(heads)} |", f"|{'|'.join(rule)}|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join([_markdown(table.caption), "", *lines, ""])


def table_latex(table: TableBlock) -> str:
    r"""A floating table that needs ``\usepackage{booktabs}``."""
    align = "".join("r" if right else "l" for right in right_columns(table))
    head = " & ".join(_latex(head.title) for head in table.heads)
    rows = [" & ".join(_latex(text) for text in row) for row in shown_rows(table)]
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_latex(table.caption)}}}",
        rf"  \label{{tab:{table.id}}}",
        rf"  \begin{{tabular}}{{{align}}}",
        r"    \toprule",
        rf"    {head} \\",
        r"    \midrule",
        *(rf"    {row} \\" for row in rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join([*lines, ""])


WRITERS: dict[str, Callable[[TableBlock], str]] = {"csv": table_csv, "md": table_markdown, "tex": table_latex}


def write_tables(tables: Iterable[TableBlock], folder: Path, formats: Sequence[str] = tuple(WRITERS)) -> list[Path]:
    """Every table in every format, named by its id."""
    for ending in formats:
        if ending not in WRITERS:
            raise unknown_name("format of a table", ending, WRITERS)
    return [_write(folder / f"{table.id}.{ending}", WRITERS[ending](table)) for table in tables for ending in formats]


def records_table(
    id: str,
    records: Sequence[dict[str, Value]],
    columns: Sequence[str],
    caption: str,
) -> TableBlock:
    """The table of some keys of records; a key that a record lacks is an empty cell."""
    known = {key for record in records for key in record}
    for column in columns:
        if records and column not in known:
            raise unknown_name("column", column, sorted(known))
    if not columns:
        raise InputError(f"columns of table {id!r}: expected at least one, got none")
    return TableBlock(id, list(columns), [[record.get(column) for column in columns] for record in records], caption)


def right_columns(table: TableBlock) -> list[bool]:
    """Which columns stand at the right: those of numbers alone."""
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.heads)
    return [any(map(is_number, cells)) and all(is_number(c) or _empty(c) for c in cells) for cells in columns]


def shown_rows(table: TableBlock) -> list[list[str]]:
    """The cells as they are read."""
    return [[shown(value, head) for value, head in zip(row, table.heads, strict=True)] for row in table.rows]


def _empty(value: Value) -> bool:
    return value is None or value != value or value == NOTHING


def _write(path: Path, text: str) -> Path:
    return write_whole(path, lambda temporary: temporary.write_bytes(text.encode("utf-8", "replace")))


def _quoted(text: str) -> str:
    # Python's writer leaves a lone carriage return bare when lines end in "\n".
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",\r\n]', text) else text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _markdown(text: str) -> str:
    plain = re.sub(r"&(?=[#\w]+;)", "&amp;", _one_line(text)).replace("<", "&lt;")
    return re.sub(r"([\\|`*_\[\]~$])", r"\\\1", plain)


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in _one_line(text))
