"""Tables as files: what a spreadsheet, a Markdown reader and LaTeX make of them."""

import csv
import io

import pytest

from softmax_rnn.report.cells import Cell, Column, in_csv, shown, sort_key
from softmax_rnn.report.elements import TableBlock
from softmax_rnn.report.tables import (
    records_table,
    right_columns,
    table_csv,
    table_latex,
    table_markdown,
    write_tables,
)

from .pages import HOSTILE

PLAIN = Column("x")


COLUMNS = ("name", Column("loss", ".2f"))


def table(*rows, columns=COLUMNS, caption="A caption"):
    return TableBlock("losses", columns, rows, caption)


@pytest.mark.parametrize("text", ["=1+1", "+1+cmd", "-x", "@SUM(A1)", "\t=1", "\r=1", "＝1"])
def test_text_that_a_spreadsheet_would_run_is_harmless(text):
    ((_, cell),) = list(csv.reader(io.StringIO(table_csv(table(["a", text])), newline=""), strict=True))[1:]
    assert cell == f"'{text}"


@pytest.mark.parametrize("value", [-1.5, "-1.5", "+2", "-1e-3", "a=b"])
def test_numbers_and_other_text_stay_as_they_are(value):
    assert in_csv(value) == str(value)


def test_titles_of_columns_are_harmless_too():
    assert table_csv(table(columns=("=1", "b"))) == "'=1,b\n"


def test_csv_has_numbers_in_full_and_quotes_what_must_be():
    rows = [
        ["a,b", 1 / 3],
        ['say "x"', None],
        ["two\nlines", True],
        ["i", Cell("1.000 ± 0.250", 1)],
        ["f", float("inf")],
    ]
    text = table_csv(table(*rows))
    assert list(csv.reader(io.StringIO(text))) == [
        ["name", "loss"],
        ["a,b", repr(1 / 3)],
        ['say "x"', ""],
        ["two\nlines", "yes"],
        ["i", "1"],
        ["f", "inf"],
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_csv_gives_every_name_back(text):
    ((cell, _),) = list(csv.reader(io.StringIO(table_csv(table([text, 1])), newline="")))[1:]
    assert cell.removeprefix("'") == text


def test_markdown_has_one_line_a_row_and_no_markup():
    text = table_markdown(table(["a|b\n*c* <script> `d` [e](f) \\", 1.234], caption="<b> |"))
    lines = text.splitlines()
    assert lines[0] == "&lt;b> \\|"
    assert lines[3] == "|:--|--:|"
    assert lines[4] == "| a\\|b \\*c\\* &lt;script> \\`d\\` \\[e\\](f) \\\\ | 1.23 |"
    assert len(lines) == 5


def test_latex_escapes_what_latex_reads():
    text = table_latex(table(['50% & $x_1^2$ {a} ~#\\ "q" <|>', -0.5], caption="λ ± ∞ – µ"))
    assert (
        r"50\% \& \$x\_1\textasciicircum{}2\$ \{a\} \textasciitilde{}\#\textbackslash{} \textquotedbl{}q\textquotedbl{}"
        r" \textless{}\textbar{}\textgreater{} & $-$0.50 \\"
    ) in text
    assert r"\caption{$\lambda$ $\pm$ $\infty$ -- µ}" in text
    assert r"\begin{tabular}{lr}" in text
    assert [word for word in (r"\toprule", r"\midrule", r"\bottomrule") if text.count(word) != 1] == []


def test_every_row_of_latex_has_all_columns():
    lines = table_latex(table(*([name, 1.0] for name in HOSTILE))).splitlines()
    rows = [line.replace(r"\&", "") for line in lines if line.endswith(r" \\")]
    assert len(rows) == 1 + len(HOSTILE)
    assert {row.count("&") for row in rows} == {1}


@pytest.mark.parametrize(
    ("value", "text", "key"),
    [
        ("x", "x", None),
        (3, "3", "3.0"),
        (-0.123456, "−0.1235", "-0.123456"),
        (float("nan"), "nan", None),
        (float("-inf"), "−∞", "-Infinity"),
        (None, "–", None),
        (True, "yes", "1.0"),
        (Cell("about two", 2), "about two", "2.0"),
    ],
)
def test_a_cell_is_shown_and_sorted(value, text, key):
    assert shown(value, PLAIN) == text
    assert sort_key(value) == key


def test_columns_of_numbers_stand_right():
    block = TableBlock("t", ["a", "b", "c", "d"], [["x", 1, None, None], ["2", Cell("1 ± 1", 1), 2.0, None]], "c")
    assert right_columns(block) == [False, True, True, False]
    assert right_columns(TableBlock("t", ["a", "b"], [], "c")) == [False, False]


def test_tables_are_written_by_their_ids(tmp_path):
    made = write_tables([table(["a", 1.0])], tmp_path / "tables")
    assert [path.name for path in made] == ["losses.csv", "losses.md", "losses.tex"]
    assert made[0].read_text(encoding="utf-8") == "name,loss\na,1.0\n"
    assert sorted((tmp_path / "tables").iterdir()) == made


def test_records_become_a_table():
    block = records_table("t", [{"b": 2, "a": 1}, {"a": 3}], "c")
    assert [head.title for head in block.heads] == ["b", "a"]
    assert [list(row) for row in block.rows] == [[2, 1], [None, 3]]


def test_numbers_of_a_file_stand_in_columns_of_their_own_with_an_ascii_minus():
    columns = ("variant", "gap", Column("memory", unit="bytes"))
    block = table(["a", Cell("−0.500 ± 0.250", -0.5, 0.25), Cell("1.5 kB", 1536)], ["b", None, None], columns=columns)
    text = table_csv(block)
    assert text == 'variant,gap,gap ±,"memory, bytes"\na,-0.5,0.25,1536\nb,,,\n'
    assert in_csv("a − b") == "a - b"
