"""The difference of two runs, or of two specs, as plain values.

>>> found = compare("softmax", "softmax_divs")
>>> found["same_function"], list(found["parts"])
(False, ['score', 'normaliser'])
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from softmax_rnn.attention.algebra import diff, same_function
from softmax_rnn.attention.custom import spec_of
from softmax_rnn.attention.explain import part_text
from softmax_rnn.attention.formula import formula
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError
from softmax_rnn.experiment.config import differences, read_config, resolve
from softmax_rnn.model.blocks import MODEL_VARIANTS
from softmax_rnn.train.folder import RunFolder
from softmax_rnn.train.job import summary
from softmax_rnn.validation import read_json

METRICS = ("step", "test_loss", "train_loss", "test_accuracy", "tokens_per_second", "memory_bytes", "parameters")


def compare(a: str, b: str) -> dict[str, Any]:
    """Two run folders, or two variants by name or by the path of a spec's JSON file."""
    folders = [(Path(name) / "config.yaml").is_file() for name in (a, b)]
    if all(folders):
        return compare_runs(Path(a), Path(b))
    if any(folders):
        run, other = (a, b) if folders[0] else (b, a)
        raise InputError(f"compare: expected two runs or two variants, got the run {run} and {other!r}")
    for name in (a, b):
        if Path(name).is_dir():
            raise InputError(f"compare: the folder {name} is no run (it has no config.yaml)")
        if "/" in name and not name.endswith(".json"):
            raise InputError(f"compare: there is no folder {name}; expected a run, a variant or a spec's .json file")
    return compare_specs(a, b)


def compare_runs(a: Path, b: Path) -> dict[str, Any]:
    """Settings that differ, and what both have measured."""
    configs = [resolve(read_config(path / "config.yaml")) for path in (a, b)]
    settings = differences(*(config.content() for config in configs))
    metrics = [_measured(RunFolder(path)) for path in (a, b)]
    known = [name for name in METRICS if any(found.get(name) is not None for found in metrics)]
    return {
        "kind": "runs",
        "names": [str(a), str(b)],
        "finished": [RunFolder(path).result() is not None for path in (a, b)],
        "settings": settings,
        "metrics": {name: [found.get(name) for found in metrics] for name in known},
        "specs": compare_specs(*(config.variant for config in configs)) if "variant" in settings else None,
    }


def _measured(folder: RunFolder) -> dict[str, Any]:
    """The result of a finished run; of another one, what its metrics come to so far."""
    metrics = folder.metrics()
    return folder.result() or (summary(metrics) if metrics else {})


def compare_specs(a: str, b: str) -> dict[str, Any]:
    """Formulas, the parts that differ, and whether the functions do."""
    one, other = _spec(a), _spec(b)
    blocks = [dict(MODEL_VARIANTS[name].options) if name in MODEL_VARIANTS else {} for name in (a, b)]
    return {
        "kind": "specs",
        "names": [a, b],
        "formulas": [formula(one), formula(other)],
        "parts": {
            name: [None if part is None else part_text(part) for part in pair]
            for name, pair in diff(one, other).items()
        },
        "block": differences(*blocks),
        "same_function": same_function(one, other) and blocks[0] == blocks[1],
    }


def _spec(name: str) -> AttentionSpec:
    path = Path(name)
    if path.suffix != ".json":
        return MODEL_VARIANTS[name].spec
    return spec_of(read_json(path, "compare"))
