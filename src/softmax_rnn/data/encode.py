"""Many documents to tokens, in the threads of the tokenizers library. No process is forked.

>>> from softmax_rnn.data.tokenisers import byte_tokenizer
>>> [tokens.tolist() for tokens in Encoder(byte_tokenizer())(["hi", "<|endoftext|>"])][0]
[104, 105, 256]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from softmax_rnn.data.tokenisers import backend_of, vocabulary_size

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Encoder:
    """Each text as an array of its tokens with the end of a document after them. A text cannot contain that token."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, workers: int = 1):
        self.dtype = np.uint16 if vocabulary_size(tokenizer) <= 2**16 else np.uint32
        self.eos: int = tokenizer.eos_token_id  # pyright: ignore[reportAttributeAccessIssue]
        self._workers = workers
        self._encode = _plain_encoding(tokenizer)

    def __call__(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The tokens of each text."""
        with _threads(self._workers):
            return [np.array([*tokens, self.eos], self.dtype) for tokens in self._encode(texts)]


def _plain_encoding(tokenizer: PreTrainedTokenizerBase) -> Callable[[Sequence[str]], Iterator[list[int]]]:
    """Encoding without truncation, padding and special tokens, whatever the tokenizer is set to."""
    backend = backend_of(tokenizer)
    if backend is None:
        return lambda texts: iter(
            tokenizer(list(texts), add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]
        )
    from tokenizers import Tokenizer

    fast = Tokenizer.from_str(backend.to_str())
    fast.no_truncation()
    fast.no_padding()
    fast.encode_special_tokens = True
    return lambda texts: (one.ids for one in fast.encode_batch_fast(list(texts), add_special_tokens=False))


@contextmanager
def _threads(workers: int) -> Iterator[None]:
    """How many threads the library takes. It reads the number once per process, whether to use them at each call."""
    wanted = {"TOKENIZERS_PARALLELISM": str(workers > 1).lower(), "RAYON_NUM_THREADS": str(workers)}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
