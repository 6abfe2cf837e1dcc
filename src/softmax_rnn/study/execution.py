"""A study by one call: runs what is left, and writes what is known to ``results.json`` as runs finish."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from softmax_rnn.files import write_json
from softmax_rnn.study.checks import check_data
from softmax_rnn.study.collect import study_results
from softmax_rnn.study.continued import Continued, continued
from softmax_rnn.study.definition import Study
from softmax_rnn.study.entries import Entries
from softmax_rnn.study.runner import Event, LocalRunner, Runner, Watch, unfinished
from softmax_rnn.study.runs import PlannedRun, planned_runs
from softmax_rnn.study.shared_runs import copy_runs, finished_in_other_studies
from softmax_rnn.study.trained_terms import trained_terms

_REST = 20
"""After writing the results of a large study, wait this many times as long as writing took."""


class StudyRun:
    """The runs of a study in a folder, and what became of them."""

    def __init__(
        self, name: str, study: Study, scale: str, output: Path, command: str, continue_from: Path | None = None
    ) -> None:
        self.name, self.study, self.scale, self.output, self.command = name, study, scale, output, command
        self.runs: list[PlannedRun] = planned_runs(study, scale, output)
        before = continued(continue_from, name, scale, self.runs) if continue_from else Continued()
        self.taken = before.entries
        """What a saved result has finished, by folder."""
        missing = [run for run in self.runs if run.folder not in self.taken]
        self.shared: dict[Path, Path] = finished_in_other_studies(missing, output)
        self._entries = Entries(self.runs, self.taken)
        self._rest_until = 0.0
        self._terms = before.terms
        self._lock = threading.Lock()

    @property
    def errors(self) -> dict[str, str]:
        """Why runs failed, by folder."""
        return self._entries.errors

    @property
    def left(self) -> list[PlannedRun]:
        """Runs that are not finished, here, in another study beside this one, or in the result that it continues."""
        return [run for run in unfinished(self.runs) if run.folder not in {*self.shared, *self.taken}]

    @property
    def count(self) -> int:
        """How many different runs there are: grids may share some."""
        return len({run.folder for run in self.runs})

    def expected_minutes(self) -> float:
        """What the study's file says, for the runs that are left."""
        return self.study.scale(self.scale).minutes * len(self.left) / max(self.count, 1)

    def results(self) -> dict[str, Any]:
        """What is known now."""
        entries = self._entries.all()
        return study_results(self.name, self.study, self.scale, entries, self.command) | {"terms": self._terms}

    def carry_out(self, runner: Runner | None = None, watch: Watch = lambda event: None) -> dict[str, Any]:
        """Run what is left; ``results.json`` is written at the start, at the end and while runs finish."""

        def note(event: Event) -> None:
            with self._lock:
                if event.state != "started":
                    self._entries.changed(event.run.folder, event.error)
                    self._write_sometimes()
                watch(event)

        left = self.left
        copy_runs(self.shared)
        for folder in self.shared:
            self._entries.changed(folder)
        self.write()
        if left:
            check_data(left, network=True)
            try:
                (runner or LocalRunner())(left, note)
            except BaseException:
                self.write()
                raise
        if self.study.terms is not None:
            self._terms = trained_terms(self.runs, self.study.terms, self.output) or self._terms
        return self.write()

    def _write_sometimes(self) -> None:
        """Leave the machine to the runs: writing takes at most a twentieth of the time."""
        if time.monotonic() >= self._rest_until:
            self.write()

    def write(self) -> dict[str, Any]:
        """``results.json`` as it is now."""
        start = time.monotonic()
        results = self.results()
        write_json(self.output / "results.json", results, indent=None)
        self._rest_until = start + _REST * (time.monotonic() - start)
        return results
