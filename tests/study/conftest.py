"""Runs that were really trained, a second each, shared by the tests of this folder."""

import shutil

import pytest

from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.training import run_training

from .tiny import SETTINGS


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with two finished runs, `softmax` and `elu`, and `half`, whose second half was not run."""
    place = tmp_path_factory.mktemp("trained")
    for name, variant in (("softmax", "softmax"), ("elu", "linear_elu")):
        run_training(resolve(SETTINGS | {"variant": variant}), place / name, quiet=True)
    half = place / "half"
    half.mkdir()
    changed = (place / "softmax" / "config.yaml").read_text().replace("seed: 0", "seed: 1")
    (half / "config.yaml").write_text(changed)
    metrics = (place / "softmax" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (half / "metrics.jsonl").write_text("".join(metrics[: len(metrics) // 2]) + '{"step": 5, "lo')
    return place


@pytest.fixture
def runs(trained, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(trained, tmp_path / "runs")
