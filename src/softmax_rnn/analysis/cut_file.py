"""Measured cuts in a file, so that a run that was stopped continues where it left off: one line of JSON each.

Lines that belong to another model, text or loss, and a last line that is torn, are left aside.

>>> CutFile(None, {"model": "tiny"}).find("taylor", 2, None) is None
True
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from softmax_rnn.errors import InputError


class CutFile:
    """The cuts of one model on one text; without a path nothing is kept."""

    def __init__(self, path: Path | None, about: dict[str, Any]) -> None:
        self.path, self.about = path, json.loads(json.dumps(about))
        self.known = {} if path is None else dict(self._read(path))

    def _read(self, path: Path) -> Any:
        if not path.exists():
            return
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise InputError(f"output: {path} cannot be read: {error.strerror}") from error
        ours = not lines
        for line in lines:
            try:
                row = json.loads(line)
                cut, about = row["cut"], row["about"]
                place = cut["method"], cut["order"], cut["layer"]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            ours = True
            if about == self.about:
                yield place, cut
        if not ours:
            raise InputError(f"output: {path} exists and was not written by this command; choose another folder")

    def find(self, method: str, order: int, layer: int | None) -> dict[str, Any] | None:
        """The cut that was measured before, or None."""
        return self.known.get((method, order, layer))

    def add(self, cut: dict[str, Any]) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"about": self.about, "cut": cut}) + "\n")
