"""The folder in which random uses happen: that of the wrong uses, and a small model of text."""

from __future__ import annotations

from pathlib import Path

from tests import wrong_places

from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.training import run_training


def make_place(place: Path) -> None:
    """Fill the folder."""
    wrong_places.make_place(place)
    poems = place / "poems"
    poems.mkdir()
    for number in range(8):
        (poems / f"{number}.txt").write_text(f"Rose {number} is red, and to be or not to be is the question.\n" * 9)
    settings = {
        "data": {"source": str(poems), "tokenizer": "bytes", "test_fraction": 0.3},
        "steps": 2,
        "batch_size": 2,
        "context": 16,
        "warmup_steps": 1,
        "model": {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1},
    }
    run_training(resolve(settings), place / "runs" / "text", quiet=True)
