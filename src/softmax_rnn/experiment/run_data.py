"""The data of a run: a text or a synthetic task, in one form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from softmax_rnn.data.records import source_kind
from softmax_rnn.data.rows import LoadedData
from softmax_rnn.data.tasks.task import Task
from softmax_rnn.data.tokenisers import OWN

if TYPE_CHECKING:
    from softmax_rnn.experiment.config import RunConfig


LLAMA_2_TOKENS = 32_000


def on_hub(config: RunConfig) -> bool:
    """Whether the data, or its tokenizer, comes from the Hugging Face hub."""
    if isinstance(config.data, Task):
        return False
    tokenizer = config.data.tokenizer
    here = tokenizer in OWN or Path(tokenizer).expanduser().exists()
    return source_kind(config.data.source) == "hub" or not here


def vocabulary_guess(config: RunConfig) -> int:
    """The tokens of a vocabulary that is not loaded; for tokenizers of the hub, the number that Llama 2 has."""
    if isinstance(config.data, Task):
        return config.data.vocab_size
    return {"bytes": 257, "bpe": config.data.vocab_size}.get(config.data.tokenizer, LLAMA_2_TOKENS)


def load_run_data(config: RunConfig) -> LoadedData:
    """The data. Every process may call: what is kept on disk is prepared by one of them while the others wait."""
    if isinstance(config.data, Task):
        # Any: pyright does not take a cached property for a property.
        train: Any = config.data.rows("train", config.seed)
        test: Any = config.data.rows("test", config.seed)
        facts = {"train": train.facts(), "test": test.facts()}
        return LoadedData(train, test, config.data.vocab_size, None, facts)
    from softmax_rnn.data.text import load_text

    return load_text(config.data, context=config.context, seed=config.seed)
