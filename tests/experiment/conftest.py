"""Whole runs that many tests look at: made once."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.experiment.small import SETTINGS, write_config, write_texts

from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.training import run_training
from softmax_rnn.train.job import Outcome


@dataclass(frozen=True)
class Reference:
    """A run that nothing disturbed, the settings it had, and the file that says them."""

    folder: Path
    settings: dict
    config: Path
    outcome: Outcome


KINDS = {
    "task": {},
    "packed": {"data": {"source": "texts.jsonl"}, "context": 24, "steps": 16},
    "stream": {"data": {"source": "texts.jsonl", "streaming": True, "shuffle_buffer": 7}, "context": 24, "steps": 16},
}


@pytest.fixture(scope="session")
def references(tmp_path_factory):
    """Runs of the kinds above by name, each made when it is first asked for."""
    base = tmp_path_factory.mktemp("references")
    texts = write_texts(base / "texts.jsonl")
    made: dict[str, Reference] = {}

    def reference(kind: str) -> Reference:
        if kind not in made:
            settings = {**SETTINGS, **KINDS[kind]}
            if kind != "task":
                data = {**settings["data"], "source": str(texts), "cache": str(base / "cache"), "test_fraction": 0.2}
                settings["data"] = data | {"workers": 1}
            config = write_config(base / f"{kind}.yaml", **settings)
            outcome = run_training(resolve(settings), base / kind, quiet=True)
            made[kind] = Reference(base / kind, settings, config, outcome)
        return made[kind]

    return reference
