"""The record of a conversion as plain values, collected from its stages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from softmax_rnn.experiment.network import layer_bytes
from softmax_rnn.linearise.measure import STEPS, decoding
from softmax_rnn.linearise.settings import LineariseConfig
from softmax_rnn.model.convert import specs_of
from softmax_rnn.train.folder import RunFolder
from softmax_rnn.validation import read_json

RECORD = "linearise.json"
CALIBRATION = "calibration.json"
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384, 32768)


def make_record(
    config: LineariseConfig, folder: Path, texts: list[dict[str, Any]], original: PreTrainedModel, student: Any
) -> dict[str, Any]:
    """Losses and errors by stage, what they cost, and the bytes of the decoding state against the context."""
    stages = ["original", "before", *config.stages]
    measured = {name: read_json(folder / "stages" / name / "measured.json", "output") for name in stages}
    results = {name: RunFolder(folder / "stages" / name).result() or {} for name in config.training}
    if "calibrate" in config.stages:
        results["calibrate"] = read_json(folder / "stages" / "calibrate" / CALIBRATION, "output")
    return {
        "format": 1,
        "model": model_name(config.model),
        "to": config.to,
        "formula": config.formula(),
        "parameters": sum(weight.numel() for weight in student.parameters()),
        "settings": {
            name: value for name, value in config.values().items() if name not in ("model", "spec", "data", "measure")
        },
        "texts": [_public(one) for one in texts],
        "losses": [{"stage": name, **row} for name in stages for row in measured[name]["losses"]],
        "errors": [{"stage": name, **row} for name in stages for row in measured[name].get("errors", [])],
        "halves": [{"stage": name, **row} for name in stages for row in measured[name].get("halves", [])],
        "calibration": {k: v for k, v in results.get("calibrate", {}).items() if k in ("method", "tried")},
        "layers": results.get("calibrate", {}).get("layers"),
        "memory": _memory(original, student),
        "decoding": [
            {"model": name, **row}
            for name, model in (("original", original), ("converted", student))
            for row in decoding(model, known_contexts(model, config.decode_contexts))
        ],
        "cost": [_cost(name, results[name]) for name in config.stages],
    }


def model_name(written: str) -> str:
    """The name of the original; of an absolute path only the last part.

    >>> model_name("smollm2"), model_name("/home/me/models/mine")
    ('smollm2', 'mine')
    """
    return Path(written).name if Path(written).is_absolute() else written


def _public(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts of a text without its location."""
    return {name: value for name, value in facts.items() if name not in ("source", "tokenizer")}


def _memory(original: PreTrainedModel, student: PreTrainedModel) -> list[dict[str, Any]]:
    rows = []
    for context in CONTEXTS:
        sizes = [
            sum(layer_bytes(model.config, spec, context) for spec in specs_of(model)) for model in (original, student)
        ]
        rows.append({"context": context, "original": sizes[0], "converted": sizes[1]})
    return rows


def known_contexts(model: PreTrainedModel, contexts: Sequence[int]) -> list[int]:
    """The contexts that fit before the timed tokens."""
    most = getattr(model.config, "max_position_embeddings", None)
    return [one for one in contexts if most is None or one + STEPS <= most]


def _cost(name: str, result: dict[str, Any]) -> dict[str, Any]:
    tokens, speed = result.get("tokens"), result.get("tokens_per_second")
    seconds = result.get("seconds") if name == "calibrate" else tokens / speed if tokens and speed else None
    return {"stage": name, "tokens": tokens, "seconds": seconds, "memory_bytes": result.get("memory_bytes")}
