"""The converted model as a folder for `from_pretrained`, with its tokenizer and a card that has the numbers."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from softmax_rnn.files import write_whole

LAST = "config.json"
"""Written last: a folder that has it has the whole model."""


def export(folder: Path, final: Path, tokenizer: PreTrainedTokenizerBase, record: dict[str, Any]) -> None:
    """Copy the model and tokenizer into the folder; every file appears whole."""
    with tempfile.TemporaryDirectory() as place:
        tokenizer.save_pretrained(place)
        files = {path.name: path for source in (Path(place), final) for path in source.iterdir() if path.is_file()}
        card = files.pop("README.md").read_text(encoding="utf-8")
        for name, path in sorted(files.items(), key=lambda one: one[0] == LAST):
            write_whole(folder / name, lambda temporary, path=path: shutil.copyfile(path, temporary))
    text = card.rstrip() + "\n" + card_numbers(record)
    write_whole(folder / "README.md", lambda temporary: temporary.write_text(text, encoding="utf-8"))


def card_numbers(record: dict[str, Any]) -> str:
    """The losses after each stage as a Markdown table."""
    texts = list(dict.fromkeys(row["text"] for row in record["losses"]))
    stages = list(dict.fromkeys(row["stage"] for row in record["losses"]))
    by_stage = {(row["stage"], row["text"]): row["loss"] for row in record["losses"]}
    lines = [f"\nConverted from {record['model']} to {record['to']} by `softmax-rnn linearise`. Loss in nats per token"]
    lines[0] += " on held-out text:\n"
    lines += [f"| after | {' | '.join(_plain(text) for text in texts)} |", f"|---|{'---|' * len(texts)}"]
    for stage in stages:
        cells = [by_stage[stage, text] for text in texts]
        lines.append(f"| {stage} | {' | '.join('not finite' if x is None else f'{x:.4f}' for x in cells)} |")
    tokens = sum(one["tokens"] or 0 for one in record["cost"])
    return "\n".join(lines) + f"\n\nThe stages read {tokens:,} tokens.\n"


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")
