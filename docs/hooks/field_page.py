"""The field in one table: which attention is made of which parts, read from the table of variants.

>>> "| `delta` |" in field_text()
True
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from variant_page import breakable

from softmax_rnn.attention.explain import part_text
from softmax_rnn.attention.parts import Part
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.variant_table import NEW, THE_PAPER
from softmax_rnn.attention.variants import VARIANTS

SHOWN = 12
"""Rows that are named beside a part."""
SLOTS = tuple(field.name for field in fields(AttentionSpec))


def field_text() -> str:
    """Part by part who uses it, then row by row what it is made of."""
    lines = ["## Part by part"]
    for slot in SLOTS:
        parts = list(_parts(slot))
        if parts:
            lines += [
                "",
                f"### {_words(slot).capitalize()}",
                "",
                "| Part | What | Who has it |",
                "|---|---|---|",
                *parts,
            ]
    lines += ["", "## Row by row"]
    for group in dict.fromkeys(VARIANTS.row(name).group for name in VARIANTS):
        lines += ["", f"### {group.capitalize()}", "", "| Name | Made of | Block | Source |", "|---|---|---|---|"]
        lines += [_row(name) for name in VARIANTS if VARIANTS.row(name).group == group]
    return "\n".join(lines)


def _parts(slot: str) -> Iterator[str]:
    users: dict[str, list[str]] = {}
    for name in VARIANTS:
        part = getattr(VARIANTS[name], slot)
        if isinstance(part, Part):
            users.setdefault(part.kind, []).append(name)
    for kind, names in users.items():
        # Those with a publication of their own first.
        names.sort(key=lambda name: VARIANTS.row(name).source in ("", THE_PAPER, NEW))
        said = (Part.registry[slot][kind].__doc__ or "").strip().split("\n")[0]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        yield f"| `{kind}` | {_cell(said.replace('``', '`'))} | {', '.join(map(_link, names[:SHOWN]))}{more} |"


def _row(name: str) -> str:
    row = VARIANTS.row(name)
    parts = ((slot, getattr(row.spec, slot)) for slot in SLOTS)
    made = "; ".join(f"{_words(slot)} {part_text(part)}" for slot, part in parts if part is not None)
    block = ", ".join(f"{option} {value}" for option, value in row.block.items())
    return f"| {_link(name)} | {_cell(made)} | {_cell(block)} | {_cell(row.source)} |"


def _link(name: str) -> str:
    return f"[{breakable(VARIANTS.short(name))}](variants.md#{name.lower()})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _words(slot: str) -> str:
    return slot.replace("_", " ")
