"""Runs that take a second or two: a small model on small data."""

import json
import random
from pathlib import Path
from typing import Any

from softmax_rnn.train.folder import RunFolder

MODEL = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
TASK = {"source": "mqar", "vocab_size": 32, "length": 16, "pairs": 2, "train_examples": 96, "test_examples": 20}
SETTINGS: dict[str, Any] = {
    "variant": "gated_softmax",
    "model": MODEL,
    "data": TASK,
    "steps": 10,
    "batch_size": 8,
    "warmup_steps": 2,
    "eval_every": 4,
    "log_every": 3,
    "checkpoint_every": 4,
}
WORDS = ["the", "a", "king", "queen", "sea", "is", "was", "and", "of", "in", "loved", "saw", "old", "ship", "storm"]


def write_texts(path: Path, documents: int = 120, seed: int = 0) -> Path:
    """A file of documents, one a line."""
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(4, 40))) for _ in range(documents)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def same_metrics(folder: Path) -> list[dict[str, Any]]:
    """A run's metrics without what depends on the machine's mood."""
    lines = RunFolder(folder).metrics()
    return [{k: v for k, v in line.items() if k not in ("tokens_per_second", "memory_bytes")} for line in lines]


def final_bytes(folder: Path) -> bytes:
    return (folder / "final" / "model.safetensors").read_bytes()


def write_config(path: Path, **settings: Any) -> Path:
    import yaml

    path.write_text(yaml.safe_dump({**SETTINGS, **settings}))
    return path
