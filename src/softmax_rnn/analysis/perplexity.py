"""How well a model predicts a text, and what changes when its attention is swapped.

    loss = − mean over all predicted tokens of log p(token | its window so far)        perplexity = exp(loss)

The mean weighs every token once, also where the last window is shorter.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from softmax_rnn.attention import nonpositive
from softmax_rnn.attention.formula import formula
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError, RunError
from softmax_rnn.files import finite
from softmax_rnn.model.convert import convert
from softmax_rnn.model.layer_specs import as_spec
from softmax_rnn.model.pretrained import load_pretrained, load_tokenizer
from softmax_rnn.train.evaluation import evaluate
from softmax_rnn.validation import read_whole

L2_NORM = "gated_softmax_no_gate_L2norm_nodivS_noclamp"
DEFAULT_VARIANTS = ("softmax", L2_NORM, *(f"taylor_{n}" for n in (2, 4, 10, 20, 40)))


@dataclass(frozen=True)
class Perplexity:
    """The token-weighted mean loss (in nats), its exponential, and the number of predicted tokens."""

    loss: float
    perplexity: float
    tokens: int


def perplexity(model: PreTrainedModel, token_ids: Tensor | Sequence[int], context: int = 512) -> Perplexity:
    """The model on one text, in windows of ``context`` tokens; each token but the first is predicted once.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
    ...                      num_attention_heads=2)
    >>> perplexity(LlamaForCausalLM(config), [1, 2, 3, 4, 5, 6], context=2).tokens
    5
    """
    ids = torch.as_tensor(token_ids, device=model.device).flatten()
    if len(ids) < 2:
        raise InputError(f"token_ids: expected at least 2 tokens, got {len(ids)}")
    if context < 1:
        raise InputError(f"context: expected 1 or more, got {context}")
    with evaluating(model):
        return mean_loss(lambda start, window: model(input_ids=window[None], use_cache=False).logits[0], ids, context)


def mean_loss(logits: Callable[[int, Tensor], Tensor], ids: Tensor, context: int) -> Perplexity:
    """The loss of what gives logits for a window: its first position in the text, and its tokens."""
    starts = range(0, len(ids) - 1, context)
    windows = [ids[start : start + context + 1].cpu().numpy() for start in starts]
    rows = [{"input_ids": window[:-1], "targets": window[1:]} for window in windows]
    coming = iter(starts)

    def network(input_ids: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=logits(next(coming), input_ids[0])[None].double())

    measured = evaluate(network, rows, batch_size=1, device=ids.device)
    return Perplexity(measured.loss, measured.perplexity, measured.tokens)


@dataclass(frozen=True)
class ConversionRow:
    """A conversion: its loss and perplexity, and the perplexity's ratio to the unconverted model's."""

    variant: str
    formula: str
    loss: float
    perplexity: float
    ratio: float
    loss_change: float
    non_positive: int
    """Row sums that were 0 or negative: outputs that are not averages."""


@dataclass(frozen=True)
class ConversionReport:
    """What swapping the attention does to a pretrained model, before any training."""

    model: str
    tokens: int
    context: int
    dtype: str
    loss: float
    perplexity: float
    rows: tuple[ConversionRow, ...]

    def to_json(self) -> str:
        """The report as JSON text; a loss that is not a number becomes null."""
        return json.dumps(finite(asdict(self)), indent=1, allow_nan=False)


def default_text() -> str:
    """A prose text that every Python has: the documentation of the language (``pydoc_data.topics``)."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def read_text(text: str | Path | None) -> str:
    """A text as it is, the content of a file (a `Path`), or the default one."""
    if text is None:
        return default_text()
    if isinstance(text, Path):
        content = read_whole(text, "text")
        if not content.strip():
            raise InputError(f"text: {text} is empty")
        return content
    return text


def token_ids(tokenizer: PreTrainedTokenizerBase, text: str, count: int) -> list[int]:
    """The first ``count`` tokens of a text, or all; fewer than two are refused."""
    # Enough characters for the tokens: a token of running text has some four, of any text fewer than forty.
    ids: Any = tokenizer(text[: 40 * count], truncation=True, max_length=count)["input_ids"]
    if len(ids) < 2:
        raise InputError(f"text: expected at least 2 tokens, got {len(ids)}")
    return ids


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Inside, the model is in evaluation mode and no gradients are computed; then it is as it was."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def conversion_report(
    model: str | PreTrainedModel,
    variants: Iterable[str | AttentionSpec] = DEFAULT_VARIANTS,
    text: str | Path | None = None,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    tokens: int = 512,
    context: int = 512,
    dtype: torch.dtype = torch.float32,
    progress: bool = False,
) -> ConversionReport:
    """The loss of a pretrained model on a text, as it is and converted to each variant in turn.

    ``conversion_report("smollm2")`` takes some minutes; with a model object give its tokenizer. The model that is
    given is left converted to the last variant.
    """
    name = model if isinstance(model, str) else model.config.name_or_path or type(model).__name__
    # Misspelt or missing names are reported before a model is loaded.
    variants = list(variants)
    for variant in variants:
        as_spec(variant)
    content = read_text(text)
    loaded = load_pretrained(model, dtype) if isinstance(model, str) else model
    if tokenizer is None:
        tokenizer = load_tokenizer(name)
    ids = token_ids(tokenizer, content, tokens + 1)
    before = perplexity(loaded, ids, context)
    if not math.isfinite(before.loss):
        raise RunError(f"model: the loss of {name} before conversion is {before.loss}, so there is nothing to compare")
    rows = []
    for variant in variants:
        loaded = convert(loaded, variant)
        after, non_positive = counted_perplexity(loaded, ids, context)
        row = _row(variant, before, after, non_positive)
        rows.append(row)
        if progress:
            print(f"{row.variant}: loss {row.loss:.4f}, perplexity × {row.ratio:.4g}", file=sys.stderr, flush=True)
    kind = str(loaded.dtype).removeprefix("torch.")
    return ConversionReport(str(name), before.tokens, context, kind, before.loss, before.perplexity, tuple(rows))


def _row(variant: str | AttentionSpec, before: Perplexity, after: Perplexity, non_positive: int) -> ConversionRow:
    change = after.loss - before.loss
    return ConversionRow(
        variant=variant if isinstance(variant, str) else variant.to_json(),
        formula=formula(as_spec(variant)),
        loss=after.loss,
        perplexity=after.perplexity,
        ratio=math.exp(change) if change < 700 else math.inf,
        loss_change=change,
        non_positive=non_positive,
    )


def counted_perplexity(
    model: PreTrainedModel, ids: Tensor | Sequence[int], context: int = 512
) -> tuple[Perplexity, int]:
    """`perplexity`, and how many row sums were not positive; rows with negative weights are not warned of."""
    return counted(lambda: perplexity(model, ids, context))


def counted(measure: Callable[[], Perplexity]) -> tuple[Perplexity, int]:
    """What a measurement gives, and how many row sums were not positive in it."""
    with nonpositive.counted() as count:
        return measure(), count.row_sums
