"""Trackers beside the run's records, through accelerate.

TensorBoard and Weights & Biases write into the folder of the run, unless their environment variables say otherwise.
``WANDB_MODE=offline`` keeps Weights & Biases off the network. Trackio has one place for all runs.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from softmax_rnn.errors import InputError
from softmax_rnn.train.settings import TrainSettings

PROJECT = "softmax-rnn"
"""The name under which trackers gather our runs."""


def check_trackers(names: Iterable[str]) -> None:
    """Refuse a tracker whose package is not installed.

    >>> check_trackers(["no_such_tracker"])
    Traceback (most recent call last):
    softmax_rnn.errors.InputError: trackers: no_such_tracker is not installed; pip install no_such_tracker
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise InputError(f"trackers: {name} is not installed; pip install {name}")


def trackers_of(settings: TrainSettings, folder: Path, name: str) -> list[Any]:
    """accelerate's trackers for a run; they start with ``init_trackers``."""
    from accelerate import tracking

    facts = settings.model_dump(mode="json")

    def tensorboard() -> Any:
        place = os.environ.get("TENSORBOARD_LOGGING_DIR", str(folder / "tensorboard"))
        return tracking.TensorBoardTracker("", logging_dir=place)

    def wandb() -> Any:
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        place = os.environ.get("WANDB_DIR", str(folder))
        return tracking.WandBTracker(project, name=name, dir=place, config=facts)

    def trackio() -> Any:
        return tracking.TrackioTracker(PROJECT, name=name, config=facts, embed=False)

    makers = {"tensorboard": tensorboard, "wandb": wandb, "trackio": trackio}
    return [makers[tracker]() for tracker in settings.trackers]
