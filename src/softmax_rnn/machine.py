"""Where and when something was measured, and how much memory this process takes."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import os
import platform
import re
import resource
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from softmax_rnn.files import cache_folder
from softmax_rnn.version import __version__


def processor() -> str:
    """The processor's name, where the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def processor_kind(facts: Mapping[str, Any]) -> str:
    """The kind of processor that `describe` has named: runs of one kind repeat to the last digit.

    >>> processor_kind({"processor": "AMD EPYC", "vector_instructions": "AVX2", "cores": 2})
    'AMD EPYC, AVX2'
    """
    return ", ".join(str(facts[name]) for name in ("processor", "vector_instructions", "card") if facts.get(name))


def describe() -> dict[str, Any]:
    """Date, machine and versions, for the head of a file of results."""
    import torch

    facts: dict[str, Any] = {
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
    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(torch.cuda.current_device())
        facts |= {
            "card": card.name,
            "card_memory": card.total_memory,
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
        }
    return facts


def surroundings(with_torch: bool = True) -> dict[str, Any]:
    """The machine for a reader: processor, memory, accelerator, folders and settings that decide where things go."""
    cache = cache_folder()
    facts: dict[str, Any] = {
        "softmax-rnn": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": f"{processor()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.1f} GB",
        "disk free here": f"{shutil.disk_usage(Path.cwd()).free / 1e9:.1f} GB",
        "cache of tokenised texts": f"{cache}{'' if _writable(cache) else ', which cannot be written'}",
        "Hugging Face hub": "offline (HF_HUB_OFFLINE)" if os.environ.get("HF_HUB_OFFLINE") == "1" else "when asked for",
    }
    if with_torch:
        import torch

        facts |= {
            "threads": torch.get_num_threads(),
            "vector instructions": torch.backends.cpu.get_cpu_capability(),
            "accelerator": str(torch.accelerator.current_accelerator() or "none: everything runs on the processor"),
        }
    return facts


def _writable(folder: Path) -> bool:
    """Whether a file could be made in a folder, or in the nearest one above it that is there."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK)


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


def return_freed() -> None:
    """Give freed memory back to the system: glibc keeps blocks below 32 MB. Elsewhere nothing happens."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def current_bytes() -> int:
    """The resident memory of this process now; where the system does not give it, the peak so far."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * resource.getpagesize() if status.exists() else peak_bytes()
