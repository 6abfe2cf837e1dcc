"""A model from a folder or the hub, whole or not at all: every problem of a checkpoint in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from softmax_rnn import hub
from softmax_rnn.errors import InputError, first_line
from softmax_rnn.model.configuration import SoftmaxRNNConfig

SHOWN = 4
"""So many tensors are named in an error."""


def load_model(
    name: str | Path, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> PreTrainedModel:
    """The causal language model of a folder, a short name or the hub, in evaluation mode; refused unless complete.

    >>> load_model("/no/such/folder")
    Traceback (most recent call last):
    softmax_rnn.errors.InputError: model: there is no folder /no/such/folder
    """
    if str(name) in hub.SHORT_NAMES:
        from softmax_rnn.model import pretrained

        return pretrained.load_pretrained(name, dtype).to(device or "cpu")  # pyright: ignore[reportArgumentType]
    hub.check_folder(name)
    local = not Path(name).expanduser().is_dir() and hub.only_local("model", str(name))
    try:
        with quiet():
            model, info = AutoModelForCausalLM.from_pretrained(  # pyright: ignore[reportGeneralTypeIssues]
                str(name),
                dtype="auto" if dtype is None else dtype,
                use_safetensors=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                local_files_only=local,
            )
    except InputError as error:
        raise InputError(f"model: {name}: {error}") from error
    except Exception as error:  # files that are absent, damaged or of another model raise errors of all kinds
        said = f"{type(error).__name__}: {first_line(error, 'no message')}"
        raise InputError(f"model: {name} cannot be loaded: {said}") from error
    check_complete(name, model, info)
    check_finite(name, model)
    return model.to(device or "cpu").eval()


def check_complete(name: str | Path, model: PreTrainedModel, info: dict[str, Any]) -> None:
    """Refuse a checkpoint whose tensors are not exactly the model's; say which and, for gates and norms, why."""
    missing = sorted(info.get("missing_keys", ()))
    extra = sorted(info.get("unexpected_keys", ()))
    mismatched = sorted(info.get("mismatched_keys", ()))
    parts = list(dict.fromkeys(key.split(".parts.")[1].split(".")[0] for key in missing if ".parts." in key))
    said = []
    if parts and isinstance(model.config, SoftmaxRNNConfig):
        said.append(f"the spec needs {', '.join(parts)}, which it lacks ({_listed(missing)})")
    elif missing:
        said.append(f"missing tensors: {_listed(missing)}")
    if extra:
        said.append(f"extra tensors: {_listed(extra)}")
    if mismatched:
        shapes = [f"{key} is {tuple(came)}, not {tuple(expected)}" for key, came, expected in mismatched]
        said.append(f"tensors of another shape: {_listed(shapes)}")
    if said:
        raise InputError(f"model: the checkpoint {name} does not fit its config: {'; '.join(said)}")


def check_finite(name: str | Path, model: PreTrainedModel) -> None:
    """Refuse weights that are not numbers: whatever is computed from them looks like a result and is none."""
    broken = [key for key, x in model.state_dict().items() if x.numel() and not _all_finite(x)]
    if broken:
        raise InputError(f"model: the checkpoint {name} has weights that are not finite: {_listed(broken)}")


def _all_finite(x: Tensor) -> bool:
    """Whether the least and the largest value are numbers: exact, without a copy of the weights."""
    return bool(torch.stack(x.aminmax()).isfinite().all())


def _listed(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


@contextmanager
def quiet() -> Iterator[None]:
    """transformers without progress bars and tables; what goes wrong is an error here."""
    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
