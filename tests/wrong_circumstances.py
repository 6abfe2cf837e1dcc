"""What may be wrong around a command: a package that is missing, a full disk, a port or a folder in use."""

import errno
import importlib.util
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from softmax_rnn.train.folder import RunFolder

Circumstance = Callable[[pytest.MonkeyPatch], AbstractContextManager[Any]]


def without(package: str) -> Circumstance:
    """A package that is not installed."""

    def missing(monkeypatch: pytest.MonkeyPatch) -> AbstractContextManager[Any]:
        find = importlib.util.find_spec

        def find_spec(name: str, *rest: Any) -> Any:
            return None if name == package else find(name, *rest)

        monkeypatch.setattr(importlib.util, "find_spec", find_spec)
        return nullcontext()

    return missing


def full_disk(writer: str) -> Circumstance:
    """Writing fails as on a disk that is full."""

    def full(monkeypatch: pytest.MonkeyPatch) -> AbstractContextManager[Any]:
        def write(path: Path, *rest: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

        monkeypatch.setattr(writer, write)
        return nullcontext()

    return full


@contextmanager
def taken_port(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another program listens on the port 8765, or this test does."""
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", 8765))
            one.listen()
        except OSError as error:
            assert error.errno == errno.EADDRINUSE
        yield


def training_in(folder: str) -> Circumstance:
    """Another run is at work in the folder."""
    return lambda monkeypatch: RunFolder(Path(folder)).locked()
