"""A conversion in one call. Each stage leaves a model and its measurements, so an interrupted conversion continues.

linearise.yaml     the resolved settings
stages/NAME/       a stage: its model in final/, its losses in measured.json; training stages are runs with checkpoints
config.json, …     the converted model, for `from_pretrained`
linearise.json     the record, written last: where it exists, the conversion is finished
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from softmax_rnn.analysis.near_far import BOTH
from softmax_rnn.attention import nonpositive
from softmax_rnn.console import say
from softmax_rnn.errors import InputError
from softmax_rnn.experiment.config import differences
from softmax_rnn.files import write_folder, write_json, write_whole
from softmax_rnn.linearise.calibrate import calibrated
from softmax_rnn.linearise.closed_form import needs_ranges, score_ranges, with_ranges
from softmax_rnn.linearise.export import export
from softmax_rnn.linearise.measure import losses_by_part
from softmax_rnn.linearise.models import as_original, converted, dtype_of, own_what_learns, target_specs
from softmax_rnn.linearise.record import CALIBRATION, RECORD, make_record
from softmax_rnn.linearise.settings import LineariseConfig, resolve
from softmax_rnn.linearise.stage import train_stage
from softmax_rnn.linearise.stored_logits import logits_folder
from softmax_rnn.linearise.texts import Texts, load_texts
from softmax_rnn.linearise.transfer import LayerErrors, layer_errors
from softmax_rnn.machine import return_freed
from softmax_rnn.model.convert import specs_of
from softmax_rnn.model.loading import load_model
from softmax_rnn.model.pretrained import load_pretrained, load_tokenizer
from softmax_rnn.train.folder import RunFolder, environment
from softmax_rnn.train.processes import any_process, on_cpu, process_group, this_share, wait_for_all
from softmax_rnn.validation import check_output, read_json, read_settings

SETTINGS = "linearise.yaml"


@dataclass(frozen=True)
class Converted:
    """How a conversion ended: with its record, or before that, stopped by a signal."""

    folder: Path
    stopped_by: str | None
    record: dict[str, Any] | None


def linearise(config: LineariseConfig, output: str | Path, *, quiet: bool = False) -> Converted:
    """Convert in a folder. One that holds the same conversion is continued; one that is finished is left as it is."""
    folder = Path(output)
    check_folder(config, folder)
    if (folder / RECORD).exists():
        drop_stage_models(folder)
        return Converted(folder, None, read_json(folder / RECORD, "output"))
    tokenizer = load_tokenizer(config.model)
    texts = load_texts(config, tokenizer, config.context)
    any_stage = config.train_settings((*config.training, "distil")[0])
    is_new = not folder.exists()
    with process_group(any_stage):
        first = this_share().rank == 0
        with RunFolder(folder).locked() if first else nullcontext():
            if first:
                write_whole(folder / SETTINGS, lambda path: path.write_text(config.to_yaml(), encoding="utf-8"))
            wait_for_all()
            with nonpositive.counted(), _removed_if_refused(folder) if first and is_new else nullcontext():
                return _Conversion(config, folder, tokenizer, texts, quiet or not first).run()


@contextmanager
def _removed_if_refused(folder: Path) -> Iterator[None]:
    """Inside, a folder that was new is removed again where the conversion is refused before its first stage is done."""
    try:
        yield
    except InputError:
        if not any(folder.glob("stages/*/final")):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def drop_stage_models(folder: Path) -> None:
    """Remove the models that the stages of a finished conversion left."""
    for path in folder.glob("stages/*/final"):
        shutil.rmtree(path, ignore_errors=True)


def check_folder(config: LineariseConfig, folder: Path) -> None:
    """Refuse a folder that holds another conversion, or other files."""
    check_output(folder, folder=True)
    if (folder / SETTINGS).exists():
        changed = differences(resolve(read_settings(folder / SETTINGS, "output")).content(), config.content())
        if changed:
            name, (before, now) = next(iter(changed.items()))
            raise InputError(
                f"output: {folder} holds a conversion with other settings ({name}: {before!r} → {now!r});"
                " choose another folder"
            )
    elif folder.exists() and any(not one.name.startswith(".") for one in folder.iterdir()):
        raise InputError(f"output: the folder {folder} holds other files and no conversion; choose another folder")


class _Conversion:
    """The stages of a conversion, in order."""

    def __init__(
        self, config: LineariseConfig, folder: Path, tokenizer: PreTrainedTokenizerBase, texts: Texts, quiet: bool
    ) -> None:
        self.config, self.folder, self.tokenizer, self.texts, self.quiet = config, folder, tokenizer, texts, quiet
        self.loaded = load_pretrained(config.model, dtype_of(config.original))
        self.ranges = self._ranges()
        self.original = as_original(self.loaded).to(self._device())  # pyright: ignore[reportArgumentType]
        self.specs = target_specs(self.original, config.target)
        self.logits = None
        if config.store_logits is not None:
            self.logits = logits_folder(config.data[0].cache, self.original, config.store_logits)
        if self.ranges is not None:
            self.specs = with_ranges(self.specs, self.ranges)
        self.first = this_share().rank == 0

    def _device(self) -> torch.device:
        if on_cpu(self.config.train_settings("distil")):
            return torch.device("cpu")
        from accelerate import PartialState

        device = PartialState().device
        assert device is not None
        return device

    def _ranges(self) -> Any:
        """The ranges that polynomials on measured ranges need, from the model as it was loaded."""
        if not needs_ranges(self.config.target):
            return None
        rows = self.texts.first_rows(max(1, 2048 // self.config.context), self.config.seed)
        ids = [int(one) for row in rows for one in row["input_ids"]]
        return score_ranges(self.loaded, ids, self.config.context)

    def stage_folder(self, name: str) -> Path:
        return self.folder / "stages" / name

    def run(self) -> Converted:
        """The remaining stages, then the model and the record."""
        config = self.config
        self.measured("original", lambda: self.original)
        self.measured("before", self.unchanged)
        previous: Path | None = None
        for name in config.stages:
            self.say(f"{name} …")
            if name == "calibrate":
                self.calibrate()
            else:
                stopped = self.train(name, previous)
                if stopped is not None:
                    return Converted(self.folder, stopped, None)
            previous = self.stage_folder(name) / "final"
            self.measured(name, lambda path=previous: self.student(path))
            shutil.rmtree(self.stage_folder(name) / "checkpoints", ignore_errors=True)
        assert previous is not None
        record = None
        if self.first:
            record = make_record(config, self.folder, self.texts.facts, self.original, self.student(previous))
            record["environment"] = environment()
            export(self.folder, previous, self.tokenizer, record)
            write_json(self.folder / RECORD, record)
            drop_stage_models(self.folder)
        wait_for_all()
        return Converted(self.folder, None, record)

    def unchanged(self) -> PreTrainedModel:
        """The conversion before any stage."""
        return converted(self.original, self.specs, self.config.forget_bias, self.config.seed)

    def student(self, path: Path) -> PreTrainedModel:
        """The model that a stage left."""
        return_freed()
        student = load_model(path, dtype=torch.float32, device=self.original.device).requires_grad_(False)
        own_what_learns(student, self.original)
        return student

    def say(self, text: str) -> None:
        """Print a line, unless quiet."""
        if not self.quiet:
            say(text)

    def done(self, path: Path) -> bool:
        """Whether a file already exists; all processes get the same answer before any of them writes it."""
        return any_process(path.exists(), self.original.device)

    def measured(self, name: str, model: Callable[[], PreTrainedModel]) -> None:
        """The losses after a stage, also with window or state alone, and the errors of its attentions; once."""
        path = self.stage_folder(name) / "measured.json"
        if self.done(path):
            return
        one = model().eval()
        parts = losses_by_part(one, self.texts.held_out)
        values: dict[str, Any] = {"losses": parts.pop(BOTH)}
        if one is not self.original:
            layers = self.converted_layers(one)
            errors = LayerErrors(self.original, one, layers)
            rows = [row for rows in self.texts.held_out.values() for row in rows[:2]]
            sizes = layer_errors(errors, rows, device=self.original.device)
            values["errors"] = [{"layer": n, "error": e} for n, e in zip(layers, sizes, strict=True)]
            values["halves"] = [
                {"part": part, "text": row["text"], "loss": row["loss"]} for part, rows in parts.items() for row in rows
            ]
        if self.first:
            write_json(path, values)
        wait_for_all()
        shown = ", ".join(f"{row['text']} {row['loss']:.4f}" for row in values["losses"] if row["loss"] is not None)
        self.say(f"{name}: loss {shown or 'not finite'}")

    def converted_layers(self, model: PreTrainedModel) -> list[int]:
        """The layers whose attention differs from the original's."""
        pairs = zip(specs_of(model), specs_of(self.original), strict=True)
        layers = [number for number, (new, old) in enumerate(pairs) if new != old]
        if not layers:
            raise InputError("to: every layer has this attention already; there is nothing to convert")
        return layers

    def calibrate(self) -> None:
        """Stage 1, and the choice of layers."""
        config, folder = self.config, self.stage_folder("calibrate")
        if self.done(folder / CALIBRATION):
            return
        began = time.perf_counter()
        rows = self.texts.first_rows(max(2, config.calibration_tokens // config.context), config.seed)
        student, result = calibrated(config, self.original, self.unchanged(), rows)
        if self.first:
            write_folder(folder / "final", lambda path: student.save_pretrained(path))
            write_json(folder / CALIBRATION, result | {"seconds": time.perf_counter() - began})
        wait_for_all()

    def train(self, name: str, previous: Path | None) -> str | None:
        """Run a training stage; returns the signal that stopped it, None at its end."""
        start = self.unchanged() if previous is None else self.student(previous)
        stage = self.config.stage(name)
        assert stage.context is not None
        texts = load_texts(self.config, self.tokenizer, stage.context)
        layers = self.converted_layers(start)
        folder = RunFolder(self.stage_folder(name))
        return train_stage(name, self.config, self.original, start, layers, texts, folder, self.quiet, self.logits)
