"""Where and when something was measured, and how much memory this process takes."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import re
import resource
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from softmax_rnn.version import __version__


def processor() -> str:
    """The processor's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def describe() -> dict[str, Any]:
    """Date, machine and versions, for the head of a file of results."""
    import torch

    return {
        "date": datetime.date.today().isoformat(),
        "processor": processor(),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "softmax_rnn": __version__,
    }


def peak_bytes() -> int:
    """The largest resident memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not getrusage: its maximum is inherited from the process that started this one.
        return int(re.findall(r"VmHWM:\s*(\d+) kB", status.read_text())[0]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def forget_peak() -> None:
    """Let `peak_bytes` count from now on, where the system can: for processes that do one job after another."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def current_bytes() -> int:
    """The resident memory of this process now; where the system does not tell, the peak so far."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * resource.getpagesize() if status.exists() else peak_bytes()
