"""One case in a forked process: its exit code, what it printed, what it changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fuzz.inputs import OUT, Case
from softmax_rnn.__main__ import main

SECONDS = 20
"""Of computing, after which a case counts as hanging."""
BYTES = 6 * 2**30
BUG = 70
"""The exit code of a case that ended in an exception."""
_TEMPORARY = re.compile(r"\..+\.\d+(\.\w+)?")
"""How files and folders are called while they are written."""


@dataclass(frozen=True)
class Ending:
    """How a case ended."""

    code: int | None
    """None where a signal ended it."""
    signal: int
    out: str
    err: str


def run(case: Case, place: Path) -> Ending:
    """The command in a fork of this process, with limits of time and memory."""
    out, err = place.parent / "stdout", place.parent / "stderr"
    child = os.fork()
    if child == 0:
        _child(case, place, out, err)
    status = _wait(child)
    code = os.waitstatus_to_exitcode(status)
    said = [path.read_text(encoding="utf-8", errors="replace") for path in (out, err)]
    return Ending(code if code >= 0 else None, max(-code, 0), *said)


def _child(case: Case, place: Path, out: Path, err: Path) -> None:
    code = BUG
    try:
        for path, number in ((out, 1), (err, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(place)
        os.environ.update(case.environment)
        used = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + SECONDS, used + SECONDS + 2))
        # Of data, not of addresses: the engine that draws charts reserves more of these than there is memory.
        resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
        sys.stdout, sys.stderr = open(1, "w", encoding="utf-8"), open(2, "w", encoding="utf-8")  # noqa: SIM115
        code = main(case.words)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else BUG
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _wait(child: int) -> int:
    """The status of the child. One that neither computes nor ends is waiting for something: killed."""
    for _ in range(10 * SECONDS * 50):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def content(place: Path) -> dict[str, str]:
    """Every file that is not an output, with its hash."""
    hashes: dict[str, str] = {}
    for path in sorted(place.rglob("*")):
        name = str(path.relative_to(place))
        if path.is_file() and not name.startswith(f"{OUT}/") and name != OUT and path.name != ".lock":
            hashes[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes


def leftovers(place: Path) -> Iterator[str]:
    """Files and folders that were never finished."""
    out = place / OUT
    if out.is_dir():
        yield from (str(path) for path in out.rglob(".*") if _TEMPORARY.fullmatch(path.name))


def faults(case: Case, ending: Ending, before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    """What no case may do."""
    last = ending.err.strip().splitlines()[-1:] or [""]
    if ending.signal:
        yield f"ended by {signal.Signals(ending.signal).name}"
    elif ending.code == BUG or "Traceback (most recent call last)" in ending.err:
        yield f"traceback: {last[0]}"
    elif ending.code not in (0, 1, 2):
        yield f"exit code {ending.code}"
    elif ending.code and not last[0].startswith(("softmax-rnn: ", "failed: ")):
        yield f"exit code {ending.code} without a line: {last[0]!r}"
    elif ending.code == 2 and len(last[0]) > 1000:
        yield f"a line of {len(last[0])} characters"
    if ending.code == 0:
        try:
            case.check(ending.out)
        except Exception as error:
            yield f"wrong result: {type(error).__name__}: {error}"
    for name in before.keys() | after.keys():
        if before.get(name) != after.get(name):
            yield f"changed {name}"


def one(make: Callable[[Path], Case], place: Path) -> list[str]:
    """Make a case, run it, and say what was wrong."""
    shutil.rmtree(place / "case", ignore_errors=True)
    case = make(place)
    before, out = content(place), place / OUT
    existed = out.exists()
    ending = run(case, place)
    wrong = list(faults(case, ending, before, content(place)))
    wrong += [f"left {name} behind" for name in leftovers(place)]
    if ending.code == 2 and not existed and out.exists():
        wrong.append(f"refused after {OUT} was made: {[str(path) for path in out.rglob('*')][:5]}")
    shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
    shown = " ".join(word if len(word) < 200 else f"{word[:200]}…" for word in case.words)
    return [f"{shown}\n    {text}" for text in wrong]
