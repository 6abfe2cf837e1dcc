"""A study whose runs take a second each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from softmax_rnn.study.definition import Study, load_study
from softmax_rnn.study.runner import Event, Watch, order_of
from softmax_rnn.study.runs import PlannedRun
from softmax_rnn.study.worker import work

TASK = {"source": "mqar", "vocab_size": 32, "length": 16, "pairs": 2, "train_examples": 64, "test_examples": 32}
SETTINGS: dict[str, Any] = {
    "data": TASK,
    "steps": 6,
    "batch_size": 8,
    "warmup_steps": 2,
    "eval_every": 3,
    "checkpoint_every": 2,
    "log_every": 2,
    "model": {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1},
}
VALUES: dict[str, Any] = {
    "title": "Tiny",
    "asks": "Does it run?",
    "scales": {
        "cpu": {
            "minutes": 1,
            "grids": {"recall": {"settings": SETTINGS, "vary": {"variant": ["softmax", "linear_elu"], "seed": [0, 1]}}},
        }
    },
    "claims": [
        {"says": "elu is behind", "grid": "recall", "rule": {"kind": "behind", "what": "linear_elu", "than": "softmax"}}
    ],
}


def tiny_study(folder: Path, **changes: Any) -> tuple[str, Study]:
    """The study, read from a file as a user's would be."""
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(VALUES | changes), encoding="utf-8")
    return load_study(str(path))


class InThisProcess:
    """A runner without workers: a process of its own takes seconds to start."""

    jobs = 1

    def __call__(self, runs: Sequence[PlannedRun], watch: Watch) -> None:
        for run in runs:
            watch(Event(run, "started"))
            answer = work(json.loads(json.dumps(order_of(run))))
            watch(Event(run, answer["state"], answer.get("error"), note=answer.get("note")))
