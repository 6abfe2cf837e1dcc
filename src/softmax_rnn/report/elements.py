"""A page as data: sections of blocks. A block says what is shown; templates say how.

>>> losses = TableBlock("losses", ["variant", Column("loss", ".3f")], [["softmax", 1.818], ["L2 norm", 1.785]], "Demo.")
>>> page = Page("Demo", "Made-up numbers", [Section("result", "Result", [Prose("One table."), losses])])
>>> [table.id for table in page.tables()]
['losses']
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from softmax_rnn.errors import InputError, unknown_name
from softmax_rnn.report.cells import Column, Value

if TYPE_CHECKING:
    from markupsafe import Markup

# An id is an anchor, and the name of a file.
_ID = re.compile(r"[a-z][a-z0-9_-]{0,79}")


class Look(NamedTuple):
    """How a state is shown: a verdict is shown by a symbol and a word; the colour only repeats them."""

    symbol: str
    colour: str


State = Literal["reproduced", "not reproduced", "undecided"]
STATES: dict[State, Look] = {
    "reproduced": Look("✓", "green"),
    "not reproduced": Look("✗", "bold red"),
    "undecided": Look("?", "yellow"),
}
TONES = ("note", "warning")


@dataclass(frozen=True, slots=True)
class Prose:
    """Paragraphs, an empty line between two. Plain text is escaped; ``markupsafe.Markup`` is taken as it is."""

    text: str | Markup


@dataclass(frozen=True, slots=True)
class Subheading:
    """A heading inside a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A remark beside the text: a limit, a caution."""

    text: str | Markup
    tone: Literal["note", "warning"] = "note"

    def __post_init__(self) -> None:
        if self.tone not in TONES:
            raise unknown_name("tone of a note", self.tone, TONES)


@dataclass(frozen=True, slots=True)
class Formula:
    """A displayed formula in Unicode, line breaks kept."""

    text: str


@dataclass(frozen=True, slots=True)
class CommandBlock:
    """Commands to copy."""

    text: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a claim: the state, the numbers it rests on, the rule that was fixed beforehand, its margin."""

    claim: str
    state: State
    evidence: str
    rule: str
    margin: str = ""

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise unknown_name("state of a verdict", self.state, STATES)

    @property
    def symbol(self) -> str:
        """The sign that stands for the state."""
        return STATES[self.state].symbol


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts of a study, counted."""

    verdicts: Sequence[Verdict]

    def counts(self) -> list[tuple[State, int]]:
        """How often each state occurs, in the order of the states; states that do not occur are left out."""
        states = [verdict.state for verdict in self.verdicts]
        return [(state, states.count(state)) for state in STATES if state in states]


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table; a column is a title or a :class:`Column`. Readers sort, filter and take it with them as CSV."""

    id: str
    columns: Sequence[str | Column]
    rows: Sequence[Sequence[Value]]
    caption: str
    filterable: bool = False

    def __post_init__(self) -> None:
        columns = tuple(one if isinstance(one, Column) else Column(one) for one in self.columns)
        object.__setattr__(self, "columns", columns)
        for number, row in enumerate(self.rows):
            if len(row) != len(columns):
                raise InputError(
                    f"rows[{number}] of table {self.id!r}: expected {len(columns)} cells, got {len(row)}: {list(row)!r}"
                )

    @property
    def heads(self) -> tuple[Column, ...]:
        """The columns, each a :class:`Column`."""
        return tuple(one for one in self.columns if isinstance(one, Column))


@dataclass(frozen=True, slots=True)
class ChartBlock:
    """An Altair chart with its words: the text for who does not see it, the caption, and the data as a table."""

    id: str
    chart: Any
    alt: str
    caption: str
    table: TableBlock

    def __post_init__(self) -> None:
        if not self.alt.strip():
            raise InputError(f"alt of chart {self.id!r}: expected a sentence that says what the chart shows, got none")


Block = Prose | Subheading | Note | Formula | CommandBlock | Verdicts | TableBlock | ChartBlock


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a page; the id is its anchor."""

    id: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page. ``facts`` are shown under the title: date, machine, versions."""

    title: str
    subtitle: str
    sections: Sequence[Section]
    facts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = [section.id for section in self.sections]
        ids += [part.id for part in (*self.charts(), *self.tables())]
        for number, name in enumerate(ids):
            if not _ID.fullmatch(name):
                raise InputError(f"id {name!r}: expected a small letter, then small letters, digits, '-' and '_'")
            if name in ids[:number]:
                raise InputError(f"id {name!r}: expected ids that occur once in a page, got it twice")

    def charts(self) -> Iterator[ChartBlock]:
        yield from (block for block in self._blocks() if isinstance(block, ChartBlock))

    def tables(self) -> Iterator[TableBlock]:
        """Every table of the page, those of the charts' data too."""
        for block in self._blocks():
            if isinstance(block, TableBlock):
                yield block
            elif isinstance(block, ChartBlock):
                yield block.table

    def _blocks(self) -> Iterator[Block]:
        for section in self.sections:
            yield from section.blocks
