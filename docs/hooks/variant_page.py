"""The table of variants as a page: what `softmax-rnn explain` knows about every name.

>>> "o = Σ w v / Σ w" in variants_text()
True
"""

from __future__ import annotations

from collections.abc import Iterator

from softmax_rnn.attention.explain import Explanation, explain
from softmax_rnn.attention.variants import VARIANTS


def variants_text() -> str:
    """A table of names and formulas, the families, then every variant by itself."""
    lines = ["## All of them", "", "| Name | Formula |", "|---|---|"]
    lines += [f"| {_link(name)} | {_cell(explain(VARIANTS[name]).formula)} |" for name in VARIANTS]
    lines += ["", "## Names with a number", "", "| Name | What |", "|---|---|"]
    lines += [f"| `{family.name}` | {family.note} |" for family in VARIANTS.families]
    for source in dict.fromkeys(VARIANTS.row(name).group for name in VARIANTS):
        lines += ["", f"## {source.capitalize()}"]
        for name in VARIANTS:
            if VARIANTS.row(name).group == source:
                lines += _variant(name)
    return "\n".join(lines)


def breakable(name: str) -> str:
    """A name as code that a narrow page may break after an underscore."""
    return f"<code>{name.replace('_', '_<wbr>')}</code>"


def _link(name: str) -> str:
    return f"[{breakable(name)}](#{name.lower()})"


def _cell(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _variant(name: str) -> Iterator[str]:
    found = explain(VARIANTS[name])
    yield from ("", f"### {name} {{#{name.lower()}}}", "", "```text", found.formula, "```", "")
    yield from (f"- {label}: {text}" for label, text in _facts(name, found) if text)


def _facts(name: str, found: Explanation) -> Iterator[tuple[str, str]]:
    note = VARIANTS.row(name).note
    yield "Note", "; ".join(dict.fromkeys(text for text in (note, *found.notes) if text))
    yield "Parts", ", ".join(f"{part} `{text}`" for part, text in found.parts.items())
    yield "Tensors besides q, k, v", ", ".join(f"`{tensor}`" for tensor in found.tensors)
    yield "What cancels", "; ".join(found.cancellations)
    yield "The same function as", ", ".join(_link(other) for other in found.names if other != name)
    yield "State per head, d = 64", found.state
    yield "Form at 1,024 positions", f"{found.plan.form} ({found.plan.reason})"
