"""The folder of a run: what was asked for, where it ran, what was measured, its checkpoints and the final model.

    config.yaml         the resolved settings
    data.json           what the data is, with its content hash
    environment.json    versions, git revision, machine
    metrics.jsonl       one line per measurement, in the order of steps
    checkpoints/        complete ones only
    final/              an ordinary saved model
    result.json         written last: its presence says that the run is finished

>>> import tempfile
>>> folder = RunFolder(Path(tempfile.mkdtemp()))
>>> folder.add_metrics({"step": 1, "loss": 2.0}); folder.add_metrics({"step": 2, "loss": 1.0})
>>> folder.forget_after(1)
>>> [line["step"] for line in folder.metrics()]
[1]
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from softmax_rnn.errors import InputError, RunError, shown
from softmax_rnn.files import finite, system_error, write_json, write_text
from softmax_rnn.machine import describe
from softmax_rnn.train.checkpoint import remove_leftovers
from softmax_rnn.validation import is_integer, is_number, read_json, read_whole

_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})
MEASURED = frozenset(
    {
        "test_loss",
        "train_loss",
        "test_perplexity",
        "test_accuracy",
        "test_largest_score",
        "test_dominant_order",
        "test_order_within",
        "tokens",
        "tokens_per_second",
        "memory_bytes",
        "parameters",
        "state_bytes",
    }
)
"""Numbers in a result; one that is not finite is null."""
_PACKAGES = ("transformers", "accelerate", "datasets", "tokenizers", "safetensors", "numpy")


class DiskError(RunError):
    """Something could not be written; what was written before is untouched."""


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Inside, errors of the disk become a `DiskError` that names ``what``; all others pass.

    >>> with disk_errors("the report"):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    softmax_rnn.train.folder.DiskError: the report could not be written: No space left on device
    """
    try:
        yield
    except Exception as error:
        failed = system_error(error)
        if failed is None or failed.errno not in _DISK:
            raise
        raise DiskError(f"{what} could not be written: {failed.strerror or failed}") from error


@dataclass(frozen=True)
class RunFolder:
    """The places of a run's files, and how they are written."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved settings."""
        return self.path / "config.yaml"

    @property
    def data(self) -> Path:
        """What the data is."""
        return self.path / "data.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def final(self) -> Path:
        return self.path / "final"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """For one run at a time. The system releases the lock when the process ends, however it ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("w")
        except OSError as error:
            raise InputError(f"output: {self.path} cannot be written: {error.strerror}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"output: another process is training in {self.path}") from None
            remove_leftovers(self.path)
            remove_leftovers(self.checkpoints)
            yield

    def add_metrics(self, values: dict[str, Any]) -> None:
        """One more line, on disk when this returns."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite(values), allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, Any]]:
        """All lines, in order; half a line at the end, as a run that was killed may leave it, is left out."""
        path = self.path / "metrics.jsonl"
        texts = read_whole(path, "runs").strip("\n").split("\n") if path.exists() else [""]
        lines = []
        for number, text in enumerate(texts if texts != [""] else [], start=1):
            try:
                line = json.loads(text)
            except (ValueError, RecursionError) as error:
                if number == len(texts):
                    break
                raise InputError(f"runs: {path}: line {number} is damaged; restore the file") from error
            if not isinstance(line, dict):
                raise InputError(f"runs: {path}: line {number}: expected measurements by name, got {shown(line)}")
            if "step" not in line:
                raise InputError(f"runs: {path}: line {number}: step is missing")
            if not is_integer(line["step"]):
                raise InputError(
                    f"runs: {path}: line {number}: step: expected a whole number, got {shown(line['step'])}"
                )
            lines.append(line)
        return lines

    def forget_after(self, step: int) -> None:
        """Drop what was measured after a step: it will be measured again."""
        lines = [json.dumps(values) for values in self.metrics() if values["step"] <= step]
        text = "".join(line + "\n" for line in lines)
        write_text(self.path / "metrics.jsonl", text)

    def add_environment(self, facts: dict[str, Any]) -> None:
        """Note where the run was started; each start that continued it is noted too."""
        write_json(self.path / "environment.json", {"starts": [*self.starts(), environment() | facts]})

    def starts(self) -> list[dict[str, Any]]:
        """Where the run was started and continued."""
        path = self.path / "environment.json"
        noted = read_json(path, "run") if path.exists() else {"starts": []}
        starts = noted.get("starts") if isinstance(noted, dict) else None
        if not isinstance(starts, list) or not all(isinstance(start, dict) for start in starts):
            raise InputError(f"run: {path} is damaged: it has no list of starts")
        return starts

    def result(self) -> dict[str, Any] | None:
        """What the finished run measured; None while it is not finished."""
        path = self.path / "result.json"
        if not path.exists():
            return None
        result = read_json(path, "run")
        if not isinstance(result, dict) or not is_integer(result.get("step")):
            raise InputError(f"run: {path} is damaged: expected an object with a step")
        for name, value in result.items():
            if name in MEASURED and value is not None and not is_number(value):
                raise InputError(f"run: {path}: {name}: expected a finite number, got {shown(value)}")
        return result

    def write_result(self, values: dict[str, Any]) -> None:
        """Say that the run is finished."""
        write_json(self.path / "result.json", values)


def environment() -> dict[str, Any]:
    """Machine, date, versions, and the git revision of the working directory, where there is one."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return describe() | {"packages": versions, "git": _git_revision()}


def _git_revision() -> str | None:
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
