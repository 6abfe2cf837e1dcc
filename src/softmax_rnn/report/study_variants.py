"""What each variant of a study computes, and what others have published, on the study's page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from softmax_rnn.report.cells import Column, Value
from softmax_rnn.report.elements import Block, Formula, Prose, Section, Subheading, TableBlock
from softmax_rnn.report.study_values import Results, Row, measured, place_of, summary_rows


def variants_section(results: Results) -> Section | None:
    """Formula, parts, other names and notes of every variant."""
    blocks: list[Block] = []
    for name, facts in results.get("variants", {}).items():
        blocks += [Subheading(name), Formula(facts["formula"]), Prose(_about(facts))]
    return Section("variants", "The variants", blocks) if blocks else None


def _about(facts: Mapping[str, Any]) -> str:
    parts = "; ".join(f"{name}: {text}" for name, text in facts.get("parts", {}).items())
    said = [f"Parts: {parts or 'none'}."]
    if facts.get("same_as"):
        said.append(f"The same function as {', '.join(facts['same_as'])}.")
    said += [sentence(text) for text in (*facts.get("cancellations", ()), *facts.get("notes", ()))]
    return " ".join(dict.fromkeys(said))


def sentence(text: str) -> str:
    """A note as a sentence; a name at its beginning stays as it is.

    >>> sentence("without RoPE"), sentence("taylor_1 falls behind")
    ('Without RoPE.', 'taylor_1 falls behind.')
    """
    first = text.partition(" ")[0]
    begun = text[:1].upper() + text[1:] if first.isalpha() else text
    return begun if begun.endswith((".", "!", "?")) else f"{begun}."


def published_section(results: Results) -> Section | None:
    """Numbers of others, marked as theirs; ours beside those that name a variant."""
    published = results.get("published") or []
    if not published:
        return None
    compared = any(_ours(results, one) for one in published)
    columns: list[str | Column] = [Column("source (theirs)", select=True), "what", "their value", "unit"]
    columns += ["ours, at our scale"] if compared else []
    rows: list[list[Value]] = []
    for one in published:
        row: list[Value] = [one["source"], one["what"], one["value"], one.get("unit", "")]
        rows.append([*row, _ours(results, one) or "–"] if compared else row)
    text = "Numbers that others have published, with their models, data and budgets. They are theirs, not ours:"
    text += " differences between variants can be compared with ours, the numbers themselves cannot."
    table = TableBlock("published-numbers", columns, rows, "Published by others.", filterable=len(rows) > 8)
    return Section("published", "Published by others", [Prose(text), table])


def _ours(results: Results, one: Mapping[str, Any]) -> str:
    """Our number for the variant that a published one names, in the same unit, in every setting."""
    metric = "test_accuracy" if one.get("unit") == "accuracy" else "test_loss"
    name = one.get("variant") or one["what"]
    rows = [row for row in summary_rows(results, "final", metric) if row["variant"] == name and row[metric]]
    return "; ".join(f"{place_of(row, rows)}: {_in_unit(row[metric], one.get('unit'))}" for row in rows)


def _in_unit(found: Row, unit: str | None) -> str:
    if unit == "log-loss":
        return f"{math.log(found['mean']):.3f}"
    cell = measured(found)
    assert cell is not None
    return cell.text
