"""A table of attentions by name: written rows, families with a number in their names, rows that a user adds.

>>> table = VariantTable({"softmax": Variant(AttentionSpec(), PAPER)}, ())
>>> table.add("undivided_softmax", AttentionSpec(normaliser=None), "softmax without its denominator")
>>> list(table)
['softmax', 'undivided_softmax']
>>> table.row("undivided_softmax").note
'softmax without its denominator'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.refused import refuse
from softmax_rnn.errors import InputError, unknown_name

PAPER = "paper"
UNDOCUMENTED = "paper (undocumented)"
TAYLOR = "orders and powers"
WRITES = "write rules"
STRUCTURE = "structure over time"
ADDED = "added"
THE_PAPER = "Mongaras & Larson (2025), arXiv 2507.23632"
NEW = "new here"


@dataclass(frozen=True)
class Variant:
    """A row of the table: the spec, its group, and what to know about it."""

    spec: AttentionSpec
    group: str
    note: str = ""
    short: str = ""
    """A readable name of at most 24 characters, where the name is not one."""
    block: Mapping[str, Any] = field(default_factory=dict)
    """What the block around the attention does differently from Llama's: options of `SoftmaxRNNConfig`."""
    source: str = ""
    """The publication, in one line; `NEW` where there is none."""


@dataclass(frozen=True)
class Family:
    """A row with a number in it: ``taylor_{n}`` gives ``taylor_0``, ``taylor_1``, …"""

    name: str
    build: Callable[[int], AttentionSpec]
    note: str
    examples: tuple[int, ...]
    group: str = TAYLOR
    block: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    def number(self, name: str) -> int | None:
        """The number in a name of this family, or None."""
        match = re.fullmatch(re.escape(self.name).replace(r"\{n\}", r"([0-9]{1,3})"), name)
        return int(match.group(1)) if match else None

    def match(self, name: str) -> AttentionSpec | None:
        """The spec of a name of this family, or None."""
        number = self.number(name)
        return None if number is None else self.build(number)

    def row(self, number: int) -> Variant:
        return Variant(self.build(number), self.group, self.note, block=self.block, source=self.source)

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
                self._rows[name] = family.row(number)
        self._names = {row.short: name for name, row in self._rows.items() if row.short}

    def __getitem__(self, name: str) -> AttentionSpec:
        return self.row(name).spec

    def __contains__(self, name: object) -> bool:
        return name in self._rows or name in self._names or any(family.has(str(name)) for family in self.families)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, name: str) -> Variant:
        """The whole row of a name: spec, group, note, block and source."""
        row = self._rows.get(self._names.get(name, name))
        if row:
            return row
        for family in self.families:
            number = family.number(str(name))
            if number is not None:
                return family.row(number)
        refuse(str(name))
        known = [*self._rows, *self._names, *(family.name for family in self.families)]
        raise unknown_name("variant", name, known)

    def full(self, name: str) -> str:
        """The full name of a row, also from its short name.

        >>> from softmax_rnn.attention.variants import VARIANTS
        >>> VARIANTS.full("softmax_l2")
        'gated_softmax_no_gate_L2norm_nodivS_noclamp'
        """
        return self._names.get(name, name)

    def short(self, name: str) -> str:
        """The readable name of a variant: what tables and charts show. Other names come back as they are.

        >>> from softmax_rnn.attention.variants import VARIANTS
        >>> VARIANTS.short("gated_softmax_no_gate_L2norm_nodivS_noclamp")
        'softmax_l2'
        """
        row = self._rows.get(name)
        return row.short or name if row else name

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
                raise InputError(f"name: expected a new name, got {name!r}, which belongs to the family {family.name}")
        if name in self._names:
            raise InputError(f"name: expected a new name, got {name!r}, which is short for {self._names[name]}")
        known = self._rows.get(name)
        # Compared as JSON: a cell that defines its part again has made another class of the same kind.
        if known and (known.group != ADDED or known.spec.to_json() != spec.to_json()):
            raise InputError(f"name: expected a new name, got {name!r}, which is already in the table ({known.group})")
        self._rows[name] = Variant(spec, ADDED, note or (known.note if known else ""))
