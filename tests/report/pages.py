"""Pages for tests: every kind of block, every kind of chart, with texts of the caller's choice."""

from __future__ import annotations

from collections.abc import Sequence

from softmax_rnn.report.cells import Cell, Column
from softmax_rnn.report.elements import (
    ChartBlock,
    CommandBlock,
    Formula,
    Note,
    Page,
    Prose,
    Section,
    Subheading,
    TableBlock,
    Verdict,
    Verdicts,
)
from softmax_rnn.report.plots import Axis, heat_map, interval_chart, line_chart, panel_chart
from softmax_rnn.report.tables import records_table

# What somebody may have called a run, a column or a study.
HOSTILE = [
    "</script><script>window.__pwned = 1</script>",
    "<img src=x onerror='window.__pwned = 1'>",
    "<!-- <script> ]]>",
    "a.b[0]['c']",
    'back\\slash \\" "quoted" \\',
    '"+(window.__pwned = 1)+"',
    "line\u2028and\u2029breaks",
    "{{ 7 * 7 }}{% endif %}${1}",
    "__proto__",
    "=1+1",
    "&lt;b&gt;",
]
HARMLESS = [f"name {i}" for i in range(len(HOSTILE))]


def every_block(names: Sequence[str]) -> Page:
    """A page in which every text is, or contains, one of the names."""
    text = " ".join(names)
    x, y, series = names[3], names[4], names[0]
    rows = [{x: step, y: 1 + i + 1 / step, series: name} for i, name in enumerate(names) for step in (1, 2, 4)]
    ends = [row | {"low": row[y] - 0.1, "high": row[y] + 0.1, "panel": names[row[x] % 2]} for row in rows]
    last = [row for row in ends if row[x] == 4]
    data = [
        line_chart(ends, x=x, y=Axis(y, text, log=True), series=series, low="low", high="high"),
        panel_chart(ends, x=Axis(x, text), y=y, series=series, panel="panel", low="low", high="high"),
        interval_chart(last, name=series, value=Axis(y, text), low="low", high="high", series="panel", reference=2),
        heat_map(rows, x=Axis(x, text), y=series, value=Axis(y, text)),
    ]
    charts = [
        ChartBlock(f"chart-{i}", chart, text, text, records_table(f"data-{i}", ends, text))
        for i, chart in enumerate(data)
    ]
    cells = [[name, names[i % 2], Cell(f"−{i} ± 0.5", -i), Cell(name, i), i / 3] for i, name in enumerate(names)]
    columns = [names[5], Column(names[1], select=True), names[2], names[9], Column(names[4], ".2f")]
    states = ("reproduced", "not reproduced", "undecided")
    words = [
        Prose(f"{text}\n\n{text}"),
        Subheading(text),
        Note(text, "warning"),
        Formula(text),
        CommandBlock(text, text),
        Verdicts([Verdict(text, state, text, text) for state in states]),
    ]
    sections = [
        Section("words", text, words),
        Section("table", text, [TableBlock("cells", columns, cells, text, filterable=True)]),
        Section("charts", text, charts),
    ]
    return Page(text, text, sections, {text: text})
