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
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from softmax_rnn.files import write_text
from softmax_rnn.report.cells import NOTHING, Cell, Value, in_csv, is_number, shown
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
    """Numbers in full, each in a separate column; text that a spreadsheet would run as a formula is made harmless."""
    return "".join(f"{line}\n" for line in csv_lines(table))


def csv_lines(table: TableBlock) -> list[str]:
    """The lines of the file, titles first. A column with intervals is followed by one with half of each."""
    halves = [any(isinstance(cell, Cell) and cell.half is not None for cell in cells) for cells in _columns(table)]
    titles: list[Value] = []
    for head, half in zip(table.heads, halves, strict=True):
        title = f"{head.title}, {head.unit}" if head.unit else head.title
        titles += [title, f"{title} ±"] if half else [title]
    lines = [titles]
    for row in table.rows:
        line: list[Value] = []
        for value, half in zip(row, halves, strict=True):
            line += [value, value.half if isinstance(value, Cell) else None] if half else [value]
        lines.append(line)
    return [",".join(_quoted(in_csv(value)) for value in line) for line in lines]


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


def write_tables(tables: Iterable[TableBlock], folder: Path) -> list[Path]:
    """Every table in every format, named by its id."""
    return [
        write_text(folder / f"{table.id}.{ending}", write(table), "replace")
        for table in tables
        for ending, write in WRITERS.items()
    ]


def records_table(id: str, records: Sequence[Mapping[str, Value]], caption: str) -> TableBlock:
    """Records by their keys; a key that a record lacks is an empty cell."""
    keys = list(dict.fromkeys(key for record in records for key in record))
    return TableBlock(id, keys, [[record.get(key) for key in keys] for record in records], caption)


def right_columns(table: TableBlock) -> list[bool]:
    """Which columns are right-aligned: those that hold only numbers."""
    return [any(map(is_number, cells)) and all(is_number(c) or _empty(c) for c in cells) for cells in _columns(table)]


def shown_rows(table: TableBlock) -> list[list[str]]:
    """The cells as they are read."""
    return [[shown(value, head) for value, head in zip(row, table.heads, strict=True)] for row in table.rows]


def _columns(table: TableBlock) -> list[tuple[Value, ...]]:
    return list(zip(*table.rows, strict=True)) or [()] * len(table.heads)


def _empty(value: Value) -> bool:
    return value is None or value != value or value == NOTHING


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
