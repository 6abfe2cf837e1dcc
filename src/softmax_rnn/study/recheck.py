"""A committed result, checked by training a sample of its runs again: what moved, to the last digit.

>>> [run["name"] for run in sample([{"name": str(i), "result": {}, "state": "finished"} for i in range(9)], 3)]
['0', '4', '8']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from softmax_rnn.errors import InputError

METRICS = ("test_loss", "train_loss", "test_accuracy")
PLACES = ("torch", "python", "softmax_rnn")
"""What can change the last digits from machine to machine."""


def sample(entries: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """``count`` of the finished runs, evenly spaced in the order of the file: the choice is stated, not drawn."""
    finished = [entry for entry in entries if entry["state"] == "finished"]
    if not finished:
        raise InputError("check: the file holds no finished run")
    last, steps = len(finished) - 1, max(1, min(count, len(finished)) - 1)
    places = dict.fromkeys(round(i * last / steps) for i in range(min(count, len(finished))))
    return [finished[place] for place in places]


def recheck(
    results: dict[str, Any], count: int, output: Path, say: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Train the sample again in a folder, and compare; runs that were begun continue."""
    import torch

    from softmax_rnn.experiment.config import resolve
    from softmax_rnn.experiment.training import run_training
    from softmax_rnn.machine import describe, processor_kind

    rows: list[dict[str, Any]] = []
    chosen = sample(results["runs"], count)
    for entry in chosen:
        say(f"check: {entry['name']}")
        config = resolve(entry["settings"])
        before = entry["result"]
        if before.get("config_hash", config.content_hash()) != config.content_hash():
            raise InputError(f"check: the settings of {entry['name']} describe a different run in this version")
        torch.set_num_threads(entry.get("threads", 1))  # sums are split among them; a study's runs have a core each
        outcome = run_training(config, output / config.content_hash()[:16], quiet=True)
        if outcome.result is None:
            raise KeyboardInterrupt
        known = [name for name in METRICS if before.get(name) is not None]
        now = outcome.result
        rows += [{"run": entry["name"], "metric": name, "was": before[name], "is": now.get(name)} for name in known]
    then, here = results["machine"], describe()
    kinds = "; ".join(dict.fromkeys(entry["processor"] for entry in chosen))
    pairs = {"processor": [kinds, processor_kind(here)]} | {name: [then.get(name), here.get(name)] for name in PLACES}
    differs = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    return {"rows": rows, "moved": [row for row in rows if row["was"] != row["is"]], "machine": differs}
