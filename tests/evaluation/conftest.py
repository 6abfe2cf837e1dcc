"""A tiny checkpoint with a tokenizer, and tasks of the harness in a folder: everything local."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "red", "green", "blue", "old", "new", "end")
QUESTIONS = [
    {"question": "one two three", "choices": ["four", "red", "blue old"], "answer": 0},
    {"question": "red", "choices": ["green", "green blue old new", "one"], "answer": 1},
    {"question": "five six seven eight five six seven", "choices": ["eight", "new"], "answer": 0},
    {"question": "old new old new old", "choices": ["new old", "end", "end end end"], "answer": 2},
    {"question": "two four", "choices": ["six eight", "one"], "answer": 1},
]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of some thousand parameters and a tokenizer of some words."""
    folder = tmp_path_factory.mktemp("checkpoint")
    vocab = {word: i for i, word in enumerate(("<pad>", "<s>", "</s>", "<unk>", *WORDS))}
    raw = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocab),
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A choice, a generation and a rolling task over one JSON file."""
    folder = tmp_path_factory.mktemp("tasks")
    data = folder / "questions.json"
    data.write_text("\n".join(json.dumps(row) for row in QUESTIONS))
    head = (
        f"dataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {data}\n  cache_dir: {folder / 'cache'}\n"
        "test_split: test\n"
    )
    (folder / "toy_choice.yaml").write_text(
        "task: toy_choice\n" + head + "output_type: multiple_choice\ndoc_to_text: '{{question}}'\n"
        "doc_to_choice: '{{choices}}'\ndoc_to_target: answer\n"
        "metric_list:\n  - metric: acc\n  - metric: acc_norm\n"
    )
    (folder / "toy_text.yaml").write_text(
        "task: toy_text\n" + head + "output_type: generate_until\ndoc_to_text: '{{question}}'\n"
        "doc_to_target: '{{choices[answer]}}'\ngeneration_kwargs:\n  max_gen_toks: 4\n  do_sample: false\n"
        "  until: ['</s>']\nmetric_list:\n  - metric: exact_match\n"
    )
    (folder / "toy_rolling.yaml").write_text(
        "task: toy_rolling\n" + head + "output_type: loglikelihood_rolling\ndoc_to_text: ''\n"
        "doc_to_target: '{{question}}'\nmetric_list:\n  - metric: word_perplexity\n"
    )
    return folder
