"""What a variant is called in tables, charts and legends: one place for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def label(variant: str) -> str:
    """The name that readers see.

    >>> label("taylor_4")
    'taylor_4'
    """
    return variant


def labelled(results: Mapping[str, Any]) -> dict[str, Any]:
    """The results of a study with every variant under its label; runs and their settings keep their names."""
    summary = dict(results.get("summary", {}))
    for part in ("final", "curves", "positions"):
        if part in summary:
            summary[part] = [_row(row) for row in summary[part]]
    if "baseline" in summary:
        summary["baseline"] = label(summary["baseline"])
    theirs = results.get("published") or []
    published = [one | {"variant": label(one["variant"])} if one.get("variant") else one for one in theirs]
    return {**results, "summary": summary, "published": published}


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(row) | {"variant": label(row["variant"])}
    if "line" in row:  # the name of a variant, alone or in front of what became of a run
        shown["line"] = label(row["variant"]) + row["line"].removeprefix(row["variant"])
    return shown
