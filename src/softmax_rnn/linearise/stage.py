"""A training stage as a run of the training loop."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn
from transformers import PreTrainedModel

from softmax_rnn.attention import nonpositive
from softmax_rnn.linearise.distil import Imitation
from softmax_rnn.linearise.handles import folded
from softmax_rnn.linearise.models import RowReader, attentions, own_what_learns, untie
from softmax_rnn.linearise.settings import LineariseConfig
from softmax_rnn.linearise.stored_logits import StoredImitation
from softmax_rnn.linearise.texts import Texts
from softmax_rnn.linearise.trained import prepare, rate
from softmax_rnn.linearise.transfer import LayerErrors, Matching, layer_units
from softmax_rnn.train.folder import RunFolder
from softmax_rnn.train.job import Job, run_job
from softmax_rnn.train.objective import Objective

WATCHED_ROWS = 2
"""Held-out rows of each text that are measured during a stage; after it, all are."""


def train_stage(
    name: str,
    config: LineariseConfig,
    original: PreTrainedModel,
    student: PreTrainedModel,
    layers: list[int],
    texts: Texts,
    folder: RunFolder,
    quiet: bool,
    logits: Path | None = None,
) -> str | None:
    """Train, or continue; returns the signal that stopped it, None at the end.

    ``logits`` is the folder of stored predictions that distil reads and adds to; None: it runs the original.
    """
    if folder.result() is not None:
        return None
    stage = config.stage(name)
    if name != "transfer" and config.untie and stage.weights == "all" and stage.rank is None:
        untie(student)
    prepare(student, layers, stage, config.seed)
    own_what_learns(student, original)
    names = _attention_names(student)
    objective: Objective
    network: nn.Module
    watched = [row for rows in texts.held_out.values() for row in rows[:WATCHED_ROWS]]
    if name == "transfer":
        network = LayerErrors(original, student, layers)
        objective = Matching(layer_units(network, watched, original.device))
    else:
        network = RowReader(student)
        objective = _imitation(original, config, logits) if name == "distil" else Objective()

    def save(weights: dict[str, Tensor], path: Path) -> None:
        student.save_pretrained(path, state_dict=_of_model(student, weights, names))

    with nonpositive.counted() as count:
        job = Job(
            name=name,
            network=network,
            train=texts.train,
            test=watched,
            settings=config.train_settings(name),
            folder=folder,
            objective=objective,
            rate=rate,
            counted=lambda: {"nonpositive_row_sums": count.row_sums},
        )
        outcome = run_job(job, save, quiet=quiet, facts={"weights": stage.weights, "rank": stage.rank})
    return outcome.stopped_by


def _imitation(original: PreTrainedModel, config: LineariseConfig, logits: Path | None) -> Objective:
    if logits is None:
        return Imitation(RowReader(original))
    assert config.store_logits is not None
    return StoredImitation(RowReader(original), logits, config.store_logits)


def _attention_names(student: PreTrainedModel) -> dict[str, str]:
    """Layer → the name of its attention module in the model."""
    by_module = {id(one): name for name, one in student.named_modules()}
    return {str(layer): by_module[id(one)] for layer, one in enumerate(attentions(student))}


def _of_model(student: PreTrainedModel, weights: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    """The trained weights under the model's names, parametrizations folded in; the other weights are the model's."""
    renamed = {}
    for name, x in weights.items():
        first, _, rest = name.partition(".")
        if first == "attentions":
            layer, _, rest = rest.partition(".")
            rest = f"{names[layer]}.{rest}"
        renamed[rest] = x
    known = student.state_dict() if any(name.startswith("attentions.") for name in weights) else {}
    return folded({**known, **renamed})
