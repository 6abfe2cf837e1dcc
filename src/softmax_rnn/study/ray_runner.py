"""Runs spread over a Ray cluster. The study's folder must be visible to all nodes.

A run whose worker or node is lost is started again on another node by Ray, and continues from its last checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from softmax_rnn.installation import need
from softmax_rnn.study.runner import Event, Watch, order_of
from softmax_rnn.study.runs import PlannedRun

RETRIES = 5
"""How often a run whose node was lost is started again."""


class RayRunner:
    """The cluster of ``address``, or that of the environment, or a new one on this machine."""

    def __init__(self, address: str | None = None, cores: int = 1, gpus: float | None = None) -> None:
        need("ray", "runner")
        self.jobs = 1
        self._address, self._cores, self._gpus = address, cores, gpus

    def __call__(self, runs: Sequence[PlannedRun], watch: Watch) -> None:
        """Carry out the runs; each takes ``cores`` cores, and a GPU where the cluster has any."""
        import ray

        started_here = not ray.is_initialized()
        if started_here:
            ray.init(address=self._address, log_to_driver=False, configure_logging=False)
        try:
            self._carry_out(ray, runs, watch)
        finally:
            if started_here:
                ray.shutdown()

    def _carry_out(self, ray: Any, runs: Sequence[PlannedRun], watch: Watch) -> None:
        gpus = self._gpus if self._gpus is not None else float(ray.cluster_resources().get("GPU", 0) > 0)
        options = {"num_cpus": self._cores, "num_gpus": gpus, "max_retries": RETRIES, "max_calls": 1}
        self.jobs = max(1, int(ray.cluster_resources().get("CPU", 1)) // self._cores)
        remote = ray.remote(**options)(_train)
        waiting = {remote.remote(order_of(run), self._cores): run for run in runs}
        announced: set[str] = set()
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1, timeout=1.0)
            for run in waiting.values():
                # The shared folder shows that a node has begun.
                if run.name not in announced and run.folder.exists():
                    announced.add(run.name)
                    watch(Event(run, "started"))
            if not done:
                continue
            run = waiting.pop(done[0])
            try:
                answer: dict[str, Any] = ray.get(done[0])
            except ray.exceptions.RayError as error:
                answer = {"state": "failed", "error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
            watch(Event(run, answer["state"], answer.get("error"), answer.get("seconds", 0.0), answer.get("note")))


def _train(order: dict[str, Any], cores: int) -> dict[str, Any]:
    import torch

    from softmax_rnn.study.worker import work

    torch.set_num_threads(cores)
    start = time.monotonic()
    return work(order) | {"seconds": time.monotonic() - start}
