"""What a run is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from softmax_rnn.data.rows import Row, Rows, RowStream
from softmax_rnn.train.folder import RunFolder
from softmax_rnn.train.guard import Diagnosis
from softmax_rnn.train.settings import TrainSettings


@dataclass(frozen=True)
class Job:
    """What is trained, on what, and where the run is kept."""

    name: str
    network: nn.Module
    train: Rows | RowStream | Sequence[Row]
    test: Rows | Sequence[Row]
    settings: TrainSettings
    folder: RunFolder
    diagnose: Diagnosis = lambda network, module: f"first bad output: {module}" if module else "all outputs are finite"
