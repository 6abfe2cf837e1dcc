"""The runs of a study: each a resolved configuration with a folder.

A run's folder is named after what varies and its content hash, so a run that is finished is never
repeated, and one whose settings have changed is another run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import found_in
from softmax_rnn.experiment.config import RunConfig, resolve
from softmax_rnn.study.definition import Study
from softmax_rnn.study.paired import panel_text


@dataclass(frozen=True)
class PlannedRun:
    """A run of a study."""

    name: str
    grid: str
    varied: Mapping[str, Any]
    config: RunConfig
    folder: Path

    @property
    def label(self) -> str:
        """The name with the variant's short name, for display; folders keep the full one."""
        return run_name(self.grid, {**self.varied, "variant": VARIANTS.short(self.config.variant)})


def planned_runs(study: Study, scale: str, output: Path) -> list[PlannedRun]:
    """All runs of a study at a scale; equal ones of several grids share a folder."""
    runs: list[PlannedRun] = []
    folders: dict[str, Path] = {}
    resolved: dict[str, RunConfig] = {}
    variants = {"variants": study.variants} if study.variants else {}
    for grid_name, grid in study.scale(scale).grids.items():
        for varied in grid.combinations():
            name = run_name(grid_name, varied)
            with found_in(f"grids.{grid_name}"):
                config = _resolved(variants | grid.settings_of(varied), resolved)
            content = config.content_hash()
            folder = folders.setdefault(content, output / "runs" / f"{name}-{content[:8]}")
            runs.append(PlannedRun(name, grid_name, varied, config, folder))
    return runs


def _resolved(settings: dict[str, Any], known: dict[str, RunConfig]) -> RunConfig:
    """The settings resolved. Runs that differ only in the seed have the same model, which is checked once."""
    seed = settings.get("seed", 0)
    key = json.dumps({name: value for name, value in settings.items() if name != "seed"}, sort_keys=True, default=str)
    if key not in known or type(seed) is not int or not 0 <= seed < 2**31:
        known[key] = resolve(settings)
    return known[key].model_copy(update={"seed": seed})


def run_name(grid: str, varied: Mapping[str, Any]) -> str:
    """A file name that says what a run is.

    >>> run_name("language", {"variant": "linear_elu", "seed": 0, "data": {"source": "my texts/a.txt"}})
    'language-linear_elu-seed0-my_texts_a.txt'
    """
    words = [grid]
    for name, value in varied.items():
        text = panel_text(value)
        words.append(text if name in ("variant", "data") else f"{name.rsplit('.', 1)[-1]}{text}")
    return re.sub(r"[^\w.-]+", "_", "-".join(words))[:150]
