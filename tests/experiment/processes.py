"""Real processes that train, started fast: a server that has everything imported forks them.

They run the command line as a user's process would, with warnings as errors, and can be killed at any moment.
"""

import multiprocessing
import os
import random
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    ["softmax_rnn.experiment.training", "softmax_rnn.cli.train", "softmax_rnn.train.loop", "datasets"]
)


def _command_line(arguments: list[str], environment: dict[str, str], log: str, before: Callable[[], None] | None):
    os.environ.update(environment)
    # Locks of libraries then leave nothing behind in the system when this process is killed.
    multiprocessing.set_start_method("fork", force=True)
    for number in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    import torch

    from softmax_rnn.__main__ import main

    torch.set_num_threads(1)
    warnings.simplefilter("error")
    if before is not None:
        before()
    code = main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: torch.distributed leaves threads that may outlive the interpreter.
    os._exit(code)


@dataclass
class Child:
    """A process on its way, and where its words go."""

    process: multiprocessing.process.BaseProcess
    log: Path

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def code(self) -> int:
        """Wait for its end; minus the signal where one ended it."""
        self.process.join(120)
        assert self.process.exitcode is not None, f"still running: {self.said()}"
        return self.process.exitcode

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def send(self, number: signal.Signals) -> None:
        if self.process.is_alive():
            os.kill(self.pid, number)


def start(
    arguments: list[str],
    log: Path,
    environment: dict[str, str] | None = None,
    before: Callable[[], None] | None = None,
) -> Child:
    log.unlink(missing_ok=True)
    process = _SERVER.Process(target=_command_line, args=(arguments, environment or {}, str(log), before), daemon=True)
    process.start()
    return Child(process, log)


def start_group(arguments: list[str], log: Path, processes: int = 2) -> list[Child]:
    """The processes that torchrun would start, with the environment it gives them."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    place = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "tests"}
    return [
        start(arguments, log.with_suffix(f".{rank}"), place | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(processes)
    ]


def wait_for(happened: Callable[[], bool], child: Child, seconds: float = 90.0) -> None:
    """Return when it happened, or when the process is gone."""
    until = time.monotonic() + seconds
    while not happened() and child.process.is_alive():
        assert time.monotonic() < until, child.said()
        time.sleep(0.01)


def kill_and_restart(begin: Callable[[], list[Child]], folder: Path, times: int, seed: int) -> int:
    """Start, kill at a random moment of the training, and again; then let it end. Returns how often it was killed."""
    chance = random.Random(seed)
    killed, reached = 0, 0
    for _ in range(times):
        children = begin()
        reached += chance.randint(0, 4)
        wait_for(lambda least=reached: _step(folder) >= least, children[0])
        time.sleep(chance.uniform(0.0, 0.08))
        killed += all(child.process.is_alive() for child in children)
        for child in children:
            child.send(signal.SIGKILL)
        for child in children:
            child.code()
        reached = max(_step(folder), 0)
    children = begin()
    codes = [child.code() for child in children]
    assert codes == [0] * len(children), [child.said() for child in children]
    return killed


def _step(folder: Path) -> int:
    """The step of the newest checkpoint; 0 when the run has begun, −1 before."""
    names = [path.name for path in (folder / "checkpoints").glob("step-*")]
    begun = 0 if (folder / "environment.json").exists() else -1
    return max((int(name.removeprefix("step-")) for name in names), default=begun)
