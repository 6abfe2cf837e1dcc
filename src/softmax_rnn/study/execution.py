"""A study by one call: runs what is left, writes what is known after every run, and ends with ``results.json``."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from softmax_rnn.files import write_json
from softmax_rnn.study.collect import study_results
from softmax_rnn.study.definition import Study
from softmax_rnn.study.runner import Event, LocalRunner, Runner, Watch, unfinished
from softmax_rnn.study.runs import PlannedRun, planned_runs
from softmax_rnn.study.shared_runs import copy_runs, finished_in_other_studies
from softmax_rnn.study.trained_terms import trained_terms


class StudyRun:
    """The runs of a study in a folder, and what became of them."""

    def __init__(self, name: str, study: Study, scale: str, output: Path, command: str) -> None:
        self.name, self.study, self.scale, self.output, self.command = name, study, scale, output, command
        self.runs: list[PlannedRun] = planned_runs(study, scale, output)
        self.shared: dict[Path, Path] = finished_in_other_studies(self.runs, output)
        self.errors: dict[str, str] = {}
        self._terms: dict[str, Any] | None = None
        self._lock = threading.Lock()

    @property
    def left(self) -> list[PlannedRun]:
        """Runs that are not finished, here or in another study beside this one."""
        return [run for run in unfinished(self.runs) if run.folder not in self.shared]

    @property
    def count(self) -> int:
        """How many different runs there are: grids may share some."""
        return len({run.folder for run in self.runs})

    def expected_minutes(self) -> float:
        """The study's own figure, for the runs that are left."""
        return self.study.scale(self.scale).minutes * len(self.left) / max(self.count, 1)

    def results(self) -> dict[str, Any]:
        """What is known now."""
        found = study_results(self.name, self.study, self.scale, self.runs, self.errors, self.command)
        return found | {"terms": self._terms}

    def carry_out(self, runner: Runner | None = None, watch: Watch = lambda event: None) -> dict[str, Any]:
        """Run what is left; ``results.json`` is written at the start and after every run."""

        def note(event: Event) -> None:
            with self._lock:
                if event.error is not None:
                    self.errors[str(event.run.folder)] = event.error
                if event.state != "started":
                    self.write()
                watch(event)

        left = self.left
        copy_runs(self.shared)
        self.write()
        if left:
            (runner or LocalRunner())(left, note)
        if self.study.terms is not None:
            self._terms = trained_terms(self.runs, self.study.terms, self.output)
        return self.write()

    def write(self) -> dict[str, Any]:
        """``results.json`` as it stands."""
        results = self.results()
        write_json(self.output / "results.json", results, indent=None)
        return results
