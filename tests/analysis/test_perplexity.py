"""Losses over a text, token by token; the report of a conversion."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from softmax_rnn.analysis.perplexity import conversion_report, default_text, perplexity, read_text
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError, RunError

torch.set_num_threads(1)


def tiny(size: float = 0.02) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        initializer_range=size,
    )
    return LlamaForCausalLM(config)


def letters() -> PreTrainedTokenizerFast:
    vocab = {c: i for i, c in enumerate("_abcdefghijklmnopqrstuvwxyz .,")}
    raw = Tokenizer(models.WordLevel(vocab, unk_token="_"))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="_")


def test_every_token_counts_once() -> None:
    model = tiny(0.3)
    ids = torch.randint(0, 32, (23,), generator=torch.Generator().manual_seed(0))
    losses = []
    for start in range(0, 22, 5):
        window = ids[start : start + 6]
        logits = model(window[None, :-1]).logits[0]
        losses += F.cross_entropy(logits, window[1:], reduction="none").tolist()
    result = perplexity(model, ids, context=5)
    assert result.tokens == len(losses) == 22
    assert result.loss == pytest.approx(sum(losses) / 22, abs=1e-6)
    assert result.perplexity == pytest.approx(math.exp(result.loss))
    assert perplexity(model, ids.tolist(), context=22) == perplexity(model, ids[None], context=100)


def test_the_mode_is_left_as_it_was() -> None:
    for training in (True, False):
        model = tiny().train(training)
        perplexity(model, [1, 2, 3])
        assert model.training is training


def test_arguments() -> None:
    with pytest.raises(InputError, match="token_ids: expected at least 2 tokens, got 1"):
        perplexity(tiny(), [3])
    with pytest.raises(InputError, match="context: expected 1 or more, got 0"):
        perplexity(tiny(), [3, 4], context=0)
    with pytest.raises(InputError, match="text: /no/such/file cannot be read"):
        read_text(Path("/no/such/file"))
    with pytest.raises(InputError, match="text: expected at least"):
        conversion_report(tiny(), text="", tokenizer=letters())


def test_weights_that_are_not_numbers() -> None:
    model = tiny()
    with torch.no_grad():
        model.lm_head.weight[0, 0] = torch.nan
    with pytest.raises(RunError, match="before conversion is nan"):
        conversion_report(model, ["softmax"], "a text", tokenizer=letters())


def test_texts(tmp_path: Path) -> None:
    assert len(default_text()) > 100_000 and read_text(None) == default_text()
    file = tmp_path / "text.txt"
    file.write_text("ab ä", encoding="utf-8")
    assert read_text(file) == "ab ä" and read_text("as it is") == "as it is"


def test_a_report() -> None:
    variants = ("softmax", "taylor_1", VARIANTS["softmax_gate"])
    report = conversion_report(
        tiny(0.6),
        variants,
        "the quick brown fox jumps over the lazy dog. " * 3,
        tokenizer=letters(),
        tokens=60,
        context=20,
    )
    softmax, order_1, gate = report.rows
    assert report.tokens == 60 and report.context == 20 and report.perplexity == pytest.approx(math.exp(report.loss))
    assert softmax.loss == pytest.approx(report.loss, abs=1e-6) and softmax.ratio == pytest.approx(1, abs=1e-6)
    assert softmax.non_positive == 0 and order_1.non_positive > 0
    assert order_1.ratio == pytest.approx(order_1.perplexity / report.perplexity)
    assert order_1.loss_change == pytest.approx(order_1.loss - report.loss)
    assert gate.variant == VARIANTS["softmax_gate"].to_json() and gate.formula.startswith("o = gᵒ")
    read = json.loads(report.to_json())
    assert set(read) == {"model", "tokens", "context", "dtype", "loss", "perplexity", "rows"}
    assert read["rows"][1]["non_positive"] == order_1.non_positive
