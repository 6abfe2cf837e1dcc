"""The model ``softmax_rnn`` of the lm-evaluation-harness: any model that `load_pretrained` knows, converted or not.

    lm_eval --model softmax_rnn --model_args pretrained=smollm2,variant=taylor_40 --tasks lambada_openai

The harness finds it through the entry point group ``lm_eval.models``; a harness that does not read entry points yet
(0.4.13) finds it when it is started as ``python -m softmax_rnn.evaluation``, with the same arguments.
"""

from __future__ import annotations

from typing import Any

import torch
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM
from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError, unknown_name
from softmax_rnn.model.convert import convert
from softmax_rnn.model.pretrained import load_pretrained, load_tokenizer

OPTIONS = (
    "batch_size",
    "max_batch_size",
    "max_length",
    "truncation",
    "logits_cache",
    "add_bos_token",
    "prefix_token_id",
    "softmax_dtype",
    "think_end_token",
    "enable_thinking",
    "chat_template_args",
)
"""Options of the harness's Hugging Face model that have a meaning here; any other would be silently ignored."""


@register_model("softmax_rnn")
class SoftmaxRNNLM(HFLM):
    """The harness's Hugging Face model, loaded by us and with its attention swapped where a variant is named.

    ``pretrained``: a short name (``smollm2``), a folder, a hub name, or a model; ``variant``: a name of `VARIANTS`.
    """

    def __init__(
        self,
        pretrained: str | PreTrainedModel,
        variant: str | AttentionSpec | None = None,
        tokenizer: str | PreTrainedTokenizerBase | None = None,
        dtype: str | torch.dtype | None = None,
        device: str | None = None,
        **options: Any,
    ) -> None:
        for name in options:
            if name not in OPTIONS:
                known = ("pretrained", "variant", "tokenizer", "dtype", "device", *OPTIONS)
                raise unknown_name("argument of the softmax_rnn model", name, known)
        model = load_pretrained(pretrained, read_dtype(dtype)) if isinstance(pretrained, str) else pretrained
        if tokenizer is None and isinstance(pretrained, str):
            tokenizer = pretrained
        if isinstance(tokenizer, str):
            tokenizer = load_tokenizer(tokenizer)
        if tokenizer is None:
            raise InputError("tokenizer: a model that is given as an object needs its tokenizer as well")
        if variant is not None:
            model = convert(model, variant)
        if device is not None:
            model.to(device)  # pyright: ignore[reportArgumentType]
        start: Any = super().__init__
        start(pretrained=model, tokenizer=tokenizer, backend="causal", **options)


def read_dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    """A dtype by its name; None and ``auto`` leave the checkpoint's.

    >>> read_dtype("float64")
    torch.float64
    """
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    known = {str(kind).removeprefix("torch."): kind for kind in (torch.float32, torch.float64, torch.bfloat16)}
    if dtype not in {*known, "auto"}:
        raise unknown_name("dtype", dtype, [*known, "auto"])
    return known.get(dtype)
