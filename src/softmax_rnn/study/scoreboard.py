"""Every claim of the paper, in its order, with the verdict at each scale: from a folder of saved results.

A scale that a study's file has and nobody has run yet is listed too, with the command that would run it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from softmax_rnn.console import about
from softmax_rnn.errors import InputError
from softmax_rnn.study.definition import STUDIES, Study, load_study
from softmax_rnn.study.result_file import is_results, read_results

NOT_RUN, UNFINISHED = "not run", "unfinished"
CHEAP = ("cpu", "overnight")
"""Scales that need no GPU: only these are asked for where they are missing."""


def is_scoreboard(folder: Path) -> bool:
    """Whether a folder holds saved results of studies, and is itself neither a run nor a study."""
    return folder.is_dir() and not (folder / "results.json").exists() and any(map(is_results, folder.glob("*.json")))


def scoreboard(folder: Path) -> dict[str, Any]:
    """A row per claim and scale, and the studies with the published numbers they quote."""
    saved: dict[str, dict[str, tuple[Path, dict[str, Any]]]] = {}
    for path in sorted(folder.glob("*.json")):  # names begin with a date: the last one of a study and scale counts
        if is_results(path):
            results = read_results(path)
            study = results["study"]
            saved.setdefault(study["name"], {})[study.get("scale") or "cpu"] = (path, results)
    if not saved:
        raise InputError(f"runs: the folder {folder} holds no saved results of a study")
    studies = []
    for name in sorted(saved, key=lambda name: (not name.startswith("sec"), name)):
        definition = load_study(name)[1] if (STUDIES / f"{name}.yaml").is_file() else None
        first = next(iter(saved[name].values()))[1]
        studies.append(
            {
                "name": name,
                "title": first["study"]["title"],
                "found": first["study"].get("found", ""),
                "claims": _claims(name, saved[name], definition),
                "published": first.get("published", []),
            }
        )
    return {"folder": str(folder), "studies": studies}


def _claims(name: str, saved: dict[str, tuple[Path, dict[str, Any]]], study: Study | None) -> list[dict[str, Any]]:
    rows = []
    for scale, (path, results) in saved.items():
        grids = {entry["grid"] for entry in results["runs"]}
        for claim in results["claims"]:
            row = {key: claim.get(key, "") for key in ("claim", "paper", "state", "margin", "evidence", "needed")}
            if claim.get("left"):
                row |= {"state": UNFINISHED}
            elif study and claim["definition"]["grid"] not in grids:  # the study's file has grown since
                row |= _not_run(name, scale, study)
            rows.append(row | {"scale": scale, "file": path.name})
    for scale in CHEAP if study else ():
        if study and scale in study.scales and scale not in saved:
            for claim in study.claims_at(scale):
                row = {"claim": claim.says, "paper": claim.paper, "margin": "", "scale": scale, "file": ""}
                rows.append(row | _not_run(name, scale, study))
    order = list(dict.fromkeys(row["claim"] for row in rows))
    return sorted(rows, key=lambda row: (order.index(row["claim"]), row["scale"]))


def _not_run(name: str, scale: str, study: Study) -> dict[str, str]:
    command = f"softmax-rnn study {name} --scale {scale} ({about(60 * study.scale(scale).minutes)} on two cores)"
    return {"state": NOT_RUN, "evidence": "", "needed": command}
