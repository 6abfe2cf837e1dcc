"""A table of attentions by name: written rows, families with a number in their names, rows that a user adds.

>>> table = VariantTable({"softmax": Variant(AttentionSpec(), REFERENCE)}, ())
>>> table.add("undivided_softmax", AttentionSpec(normaliser=None), "softmax without its denominator")
>>> list(table)
['softmax', 'undivided_softmax']
>>> table.row("undivided_softmax").note
'softmax without its denominator'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError, unknown_name

REFERENCE = "reference"
UNDOCUMENTED = "reference, undocumented"
NEIGHBOUR = "neighbour"
ADDED = "added"


@dataclass(frozen=True)
class Variant:
    """A row of the table: the spec, where the name comes from, and what to know about it."""

    spec: AttentionSpec
    source: str
    note: str = ""


@dataclass(frozen=True)
class Family:
    """A row with a number in it: ``taylor_{n}`` gives ``taylor_0``, ``taylor_1``, …"""

    name: str
    build: Callable[[int], AttentionSpec]
    note: str
    examples: tuple[int, ...]

    def number(self, name: str) -> int | None:
        """The number in a name of this family, or None."""
        found = re.fullmatch(re.escape(self.name).replace(r"\{n\}", r"(\d{1,3})"), name)
        return int(found.group(1)) if found else None

    def match(self, name: str) -> AttentionSpec | None:
        """The spec of a name of this family, or None."""
        number = self.number(name)
        return None if number is None else self.build(number)

    def has(self, name: str) -> bool:
        """Whether the name belongs to this family and its number is one that a spec can have."""
        try:
            return self.match(name) is not None
        except InputError:
            return False


class VariantTable(Mapping[str, AttentionSpec]):
    """Name → spec. Iterating gives the written rows and some of each family; looking up takes any number.

    Rows can be added, never changed or removed.
    """

    def __init__(self, rows: Mapping[str, Variant], families: tuple[Family, ...]) -> None:
        self._rows = dict(rows)
        self.families = families
        for family in families:
            for number in family.examples:
                name = family.name.replace("{n}", str(number))
                self._rows[name] = Variant(family.build(number), NEIGHBOUR, family.note)

    def __getitem__(self, name: str) -> AttentionSpec:
        row = self._rows.get(name)
        if row:
            return row.spec
        for family in self.families:
            spec = family.match(str(name))
            if spec:
                return spec
        raise unknown_name("variant", name, [*self._rows, *(family.name for family in self.families)])

    def __contains__(self, name: object) -> bool:
        return name in self._rows or any(family.has(str(name)) for family in self.families)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, name: str) -> Variant:
        """The whole row of a listed name: spec, source and note."""
        return self._rows.get(name) or Variant(self[name], NEIGHBOUR)

    def add(self, name: str, spec: AttentionSpec, note: str = "") -> None:
        """Give a spec a name, which this process then takes wherever it takes one: in `explain`, a run, a model.

        A name that exists is refused, unless it is the same row once more: a notebook may run its cell again.
        """
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
            raise InputError(f"name: expected letters, digits and _, a letter first, got {name!r}")
        if not isinstance(spec, AttentionSpec):
            raise InputError(f"spec: expected an AttentionSpec, got {type(spec).__name__}")
        for family in self.families:
            if family.number(name) is not None:
                raise InputError(f"name: expected a new one, got {name!r}, which belongs to the family {family.name}")
        known = self._rows.get(name)
        # Compared as JSON: a cell that defines its part again has made another class of the same kind.
        if known and (known.source != ADDED or known.spec.to_json() != spec.to_json()):
            raise InputError(f"name: expected a new one, got {name!r}, which stands in the table ({known.source})")
        self._rows[name] = Variant(spec, ADDED, note or (known.note if known else ""))
