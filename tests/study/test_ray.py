"""A local cluster of two nodes: runs are spread, and a run whose node is lost continues on the other."""

import json
import os
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.study.tiny import SETTINGS, tiny_study

from softmax_rnn.study.execution import StudyRun
from softmax_rnn.study.ray_runner import RayRunner
from softmax_rnn.study.runner import Event


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    # Ray's workers are nice to others by default, and would wait for all other tests to end.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  the name that Ray reads
    with warnings.catch_warnings():
        # Ray's own modules warn while they are imported.
        warnings.simplefilter("ignore")
        import ray
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        first = made.add_node(num_cpus=1, resources={"first": 1})
        made.add_node(num_cpus=1, resources={"second": 1})
        ray.init(address=made.address, log_to_driver=False, configure_logging=False)
        yield made, first
        ray.shutdown()
        made.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_lost_node_does_not_lose_its_runs(cluster: Any, tmp_path: Path):
    made, first = cluster
    long = SETTINGS | {"steps": 600, "checkpoint_every": 5}
    grids = {"two": {"settings": long, "vary": {"variant": ["softmax"], "seed": [0, 1]}}}
    study = tiny_study(tmp_path, scales={"cpu": {"minutes": 1, "grids": grids}}, claims=[])
    whole = StudyRun(*study, "cpu", tmp_path / "out", "x")
    folders = [run.folder for run in whole.runs]

    def lose_a_node() -> None:
        while not all(list((folder / "checkpoints").glob("step-*")) for folder in folders):
            time.sleep(0.05)
        made.remove_node(first, allow_graceful=False)

    killer = threading.Thread(target=lose_a_node)
    killer.start()
    events: list[Event] = []
    results = whole.carry_out(RayRunner(), events.append)
    killer.join()
    assert [entry["state"] for entry in results["runs"]] == ["finished", "finished"]
    # Told when a node has begun, and with the run's own time.
    states = [(event.run.config.seed, event.state) for event in events]
    assert all(states.index((seed, "started")) < states.index((seed, "finished")) for seed in (0, 1))
    assert all(event.seconds > 0 for event in events if event.state == "finished")
    starts = [json.loads((folder / "environment.json").read_text())["starts"] for folder in folders]
    resumed = [one for one in starts if len(one) > 1]
    assert len(resumed) == 1
    assert resumed[0][-1]["step"] > 0
