"""Text to tokens: bytes, BPE trained on the spot, or any tokenizer of transformers.

    bytes   token = byte, 0 to 255; 256 is the end of a document. Nothing to train, nothing unknown.
    bpe     byte-level byte-pair encoding, trained on the training split only

All are transformers tokenizers: they save with ``save_pretrained`` and load with `AutoTokenizer`.

>>> byte_tokenizer()("é!")["input_ids"]
[195, 169, 33]
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from softmax_rnn.cached_folder import cached, key
from softmax_rnn.errors import InputError, first_line, unknown_name

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

OWN = ("bytes", "bpe")
"""Tokenizers that are made here; a name that is nearly one of them is not asked for on the hub."""
END = "<|endoftext|>"
BPE_TEXT = 100_000_000
"""BPE is trained on this many characters at the start: more change little and take long."""


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """``bytes``, or a tokenizer by its hub name or path. It must be able to end a document."""
    if name == "bytes":
        return byte_tokenizer()
    if not Path(name).exists() and get_close_matches(name.lower(), OWN):
        raise unknown_name("tokenizer", name, OWN)
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises Exception itself
        said = f"is not 'bytes' or 'bpe' and cannot be loaded: {first_line(error)}"
        raise InputError(f"tokenizer: {name!r} {said}") from error
    if tokenizer.eos_token_id is None:
        raise InputError(f"tokenizer: {name!r} has no eos token, which must end each document")
    return tokenizer


def byte_tokenizer() -> PreTrainedTokenizerBase:
    """The bytes of UTF-8 as tokens."""
    from tokenizers import Tokenizer, models
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    vocabulary = {letter: byte for byte, letter in bytes_to_unicode().items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.add_special_tokens([END])
    return _finish(tokenizer, words=False)


def bpe_tokenizer(texts: Iterable[str], vocab_size: int, *, text_hash: str, cache: Path) -> PreTrainedTokenizerBase:
    """Byte-level BPE trained on texts, or the one that was trained on them before."""
    from transformers import PreTrainedTokenizerFast

    folder = cache / "tokenizers" / key(texts=text_hash, vocab_size=vocab_size, limit=BPE_TEXT, format=1)
    cached(folder, lambda made: train_bpe(texts, vocab_size).save_pretrained(made))
    return PreTrainedTokenizerFast.from_pretrained(folder)


def train_bpe(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerBase:
    """Byte-level BPE of ``vocab_size`` tokens, 256 bytes and the end of a document among them."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_first(texts, BPE_TEXT), trainer)
    return _finish(tokenizer, words=True)


def _first(texts: Iterable[str], characters: int) -> Iterator[str]:
    for text in texts:
        yield text
        characters -= len(text)
        if characters <= 0:
            return


def _finish(tokenizer: Tokenizer, *, words: bool) -> PreTrainedTokenizerBase:
    from tokenizers import decoders, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=END, clean_up_tokenization_spaces=False
    )


def backend_of(tokenizer: PreTrainedTokenizerBase) -> Tokenizer | None:
    """The tokenizers library's own object, where it does the work."""
    from transformers import PreTrainedTokenizerFast

    return tokenizer.backend_tokenizer if isinstance(tokenizer, PreTrainedTokenizerFast) else None


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of all that decides about tokens."""
    backend = backend_of(tokenizer)
    if backend is not None:
        content = backend.to_str()
    else:
        content = json.dumps([type(tokenizer).__name__, sorted(tokenizer.get_vocab().items())])
    return hashlib.sha256(f"{tokenizer.eos_token_id} {content}".encode()).hexdigest()


def vocabulary_size(tokenizer: PreTrainedTokenizerBase) -> int:
    """Rows that an embedding needs: one more than the largest token, also where numbers between are not used."""
    return max(len(tokenizer), max(tokenizer.get_vocab().values()) + 1)
