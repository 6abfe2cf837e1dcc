"""Distil from stored predictions: the original reads each row once, and what it predicts is kept for all conversions.

Of each position the K most likely tokens S are kept with their probabilities p, and the sum over all other tokens:

    loss = Σ_t [ Σ_{i∈S} p(i) log(p(i) / q(i)) + p(rest) log(p(rest) / q(rest)) ]        p(rest) = 1 − Σ_{i∈S} p(i)

with q the student's probabilities on the same S. This is the KL divergence when all tokens outside S count as one. It
is never more than the whole divergence, and equal to it when K is the size of the vocabulary less one.

A file per row, named by the row's tokens, in a folder named by the original's weights and K. A row that has no file is
read by the original, alone, so what is stored depends on neither the batch nor the step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from softmax_rnn.cached_folder import key
from softmax_rnn.console import say
from softmax_rnn.data.rows import IGNORED, collate
from softmax_rnn.errors import InputError
from softmax_rnn.files import write_whole
from softmax_rnn.linearise.models import RowReader
from softmax_rnn.train.batches import Batch
from softmax_rnn.train.objective import Objective

FOLDER = "logits"


@dataclass(frozen=True)
class Likely:
    """The most likely tokens of each position, (…, K), their log probabilities, and that of all others together."""

    tokens: Tensor
    logs: Tensor
    rest: Tensor

    @classmethod
    def of(cls, logits: Tensor, count: int) -> Likely:
        """From logits over the whole vocabulary."""
        everything = _log_probabilities(logits)
        logs, tokens = everything.topk(count)
        return cls(tokens.to(torch.int32), logs, _rest(everything, tokens))

    def divergence_sum(self, logits: Tensor, counted: Tensor) -> Tensor:
        """Σ over counted positions of the loss above.

        >>> made = torch.randn(1, 3, 5)
        >>> float(Likely.of(made, 2).divergence_sum(made + 1, torch.ones(1, 3, dtype=torch.bool))) < 1e-5
        True
        """
        computed, tokens = _log_probabilities(logits[counted]), self.tokens[counted].long()
        logs, rest = self.logs[counted].to(computed.dtype), self.rest[counted].to(computed.dtype)
        inside = logs.exp() * (logs - computed.gather(-1, tokens))
        return inside.sum() + (rest.exp() * (rest - _rest(computed, tokens))).sum()


def _log_probabilities(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


def _rest(logs: Tensor, tokens: Tensor) -> Tensor:
    """The log of what the other tokens have together; summed, not subtracted from 1, so that little stays exact."""
    return logs.scatter(-1, tokens, -torch.inf).logsumexp(-1)


class StoredImitation(Objective):
    """The loss above; on the test side the loss of the next token is measured, as always."""

    def __init__(self, original: RowReader, folder: Path, count: int) -> None:
        self.original, self.folder, self.count = original, folder, count

    def loss_sum(self, network: Callable[..., Any], batch: Batch) -> Tensor:
        """One pass of the network; the original reads only rows that it has not read before."""
        inputs = {name: x for name, x in batch.items() if name != "targets"}
        wanted = self.likely(inputs)
        return wanted.divergence_sum(network(**inputs).logits, batch["targets"] != IGNORED)

    def likely(self, inputs: Batch) -> Likely:
        """What the original predicts for a batch."""
        rows = [{name: x[i].cpu().numpy() for name, x in inputs.items()} for i in range(len(inputs["input_ids"]))]
        computed = [self._row(collate([row])) for row in rows]
        device = inputs["input_ids"].device
        return Likely(*(torch.cat(part).to(device) for part in zip(*computed, strict=True)))

    def _row(self, inputs: Batch) -> tuple[Tensor, Tensor, Tensor]:
        path = self.folder / f"{_hash(inputs)}.safetensors"
        names = ("tokens", "logs", "rest")
        if path.exists():
            try:
                stored = load_file(path)
                return stored["tokens"], stored["logs"], stored["rest"]
            except (SafetensorError, KeyError):
                say(f"cache: {path} is damaged; writing it again")
        device = next(self.original.parameters()).device
        with torch.no_grad():
            made = Likely.of(self.original(**{name: x.to(device) for name, x in inputs.items()}).logits, self.count)
        values = tuple(getattr(made, name).cpu().contiguous() for name in names)
        write_whole(path, lambda temporary: save_file(dict(zip(names, values, strict=True)), temporary))
        return values


def logits_folder(cache: Path, original: PreTrainedModel, count: int) -> Path:
    """Where predictions of this model are kept: another model, or other numbers, have another folder."""
    config: Any = original.config
    if count >= config.vocab_size:
        size = f"{config.vocab_size:,} tokens of the vocabulary"
        raise InputError(f"store_logits: expected fewer than the {size}, got {count:,}")
    shape = {k: v for k, v in config.to_dict().items() if k not in ("_name_or_path", "transformers_version")}
    return cache / FOLDER / key(weights=_hash(original.state_dict()), config=str(shape), count=count)


def _hash(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, x in sorted(tensors.items()):
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        digest.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
