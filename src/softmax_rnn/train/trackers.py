"""Trackers beside our own records: transformers' integrations, told where to write.

TensorBoard and Weights & Biases write below the folder of the run, unless their own environment variables say
otherwise. ``WANDB_MODE=offline`` keeps Weights & Biases off the network. Trackio has one place for all runs.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from softmax_rnn.errors import InputError

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


@contextmanager
def tracker_places(folder: Path) -> Iterator[None]:
    """Inside, trackers that ask the environment find the folder of the run; what a user has set stays.

    >>> with tracker_places(Path("runs/one")):
    ...     os.environ["TENSORBOARD_LOGGING_DIR"]
    'runs/one/tensorboard'
    """
    wanted = {
        "TENSORBOARD_LOGGING_DIR": str(folder / "tensorboard"),
        "WANDB_DIR": str(folder),
        "WANDB_PROJECT": PROJECT,
    }
    missing = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)
