"""Several processes on this machine that train one run: what ``train --processes N`` starts.

Like torchrun, but errors are the run's one line and its exit code, without a traceback of the launcher after them.
Many nodes need torchrun itself.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_GRACE = 2.0
"""Seconds for the others to end by themselves after one has failed; after that they wait for it in vain."""


def launch_command(name: str, settings: str, output: Path, options: Sequence[str], processes: int) -> int:
    """The exit code of ``softmax-rnn NAME`` in this many processes, with its settings as YAML."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.yaml"
        file.write_text(settings, encoding="utf-8")
        command = [sys.executable, "-m", "softmax_rnn", name, "--config", str(file), "--output", str(output)]
        return launch([*command, *options], processes)


def launch(command: Sequence[str], processes: int) -> int:
    """Run a command in this many processes that know of each other; returns 0, or the first exit code that is not."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    shared = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children = []
    for rank in range(processes):
        place = shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        children.append(subprocess.Popen(command, env=os.environ | place))

    def forward(number: int, frame: Any) -> None:
        for child in children:
            child.send_signal(number)

    # A Ctrl-C in the terminal reaches the children by itself.
    before = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    before[signal.SIGTERM] = signal.signal(signal.SIGTERM, forward)
    try:
        return _wait(children)
    finally:
        for child in children:
            child.kill()
            child.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(children: list[subprocess.Popen[bytes]]) -> int:
    failed, since = 0, 0.0
    # Every child is asked, not only up to the first that is running.
    while None in [child.poll() for child in children]:
        if not failed:
            failed = next((child.returncode for child in children if child.returncode), 0)
            since = time.monotonic()
        elif time.monotonic() - since > _GRACE:
            break
        time.sleep(0.05)
    codes = [child.returncode for child in children if child.returncode]
    first = failed or (codes[0] if codes else 0)
    return first if first >= 0 else 128 - first
