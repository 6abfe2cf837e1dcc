"""A text, ready for training.

>>> import tempfile
>>> config = TextConfig(source="shakespeare", max_documents=50, cache=tempfile.mkdtemp())
>>> data = load_text(config, context=64, seed=0)
>>> data.vocab_size, data.facts["documents"]
(257, {'train': 48, 'test': 2})
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

from softmax_rnn.cached_folder import key
from softmax_rnn.data.corpora import CORPORA
from softmax_rnn.data.documents import Texts, open_records, open_texts, texts_of
from softmax_rnn.data.encode import Encoder
from softmax_rnn.data.layouts import PackedRows, PaddedRows
from softmax_rnn.data.rows import LoadedData, Rows, RowStream
from softmax_rnn.data.split import check_split, in_test, sides, with_a_test
from softmax_rnn.data.text_config import TextConfig
from softmax_rnn.data.text_stream import TextStream
from softmax_rnn.data.token_files import FORMAT, Tokens, cached_tokens
from softmax_rnn.data.tokenisers import bpe_tokenizer, load_tokenizer, tokenizer_hash, vocabulary_size
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from softmax_rnn.data.records import Records

_TEST_DOCUMENTS_OF_A_STREAM = 1000


def load_text(
    config: TextConfig, *, context: int, seed: int, tokenizer: PreTrainedTokenizerBase | None = None
) -> LoadedData:
    """Rows of ``context`` tokens. What was tokenised before comes from the cache.

    A ``tokenizer`` that is given is taken; its name in the config then says only what it is.

    Every process of a run may call it: one does the work, the others wait. The seed is that of a stream's order; rows
    that are not streamed come in the order of the documents.
    """
    if context < 1:
        raise InputError(f"context: expected 1 or more, got {context}")
    return _streamed(config, context, seed, tokenizer) if config.streaming else _at_hand(config, context, tokenizer)


def _at_hand(config: TextConfig, context: int, tokenizer: PreTrainedTokenizerBase | None) -> LoadedData:
    texts = open_texts(config)
    fraction = _fraction(config)
    if config.test_fraction is None:
        fraction = with_a_test(texts, fraction)
    check_split(sides(texts, fraction, config.test_documents), fraction)
    split = _split_key(config, texts, fraction, config.test_documents)
    tokenizer = tokenizer or _tokenizer(config, texts, fraction, split)
    encoder = Encoder(tokenizer, config.workers)
    folder = config.cache / "tokens" / key(split=split, tokenizer=tokenizer_hash(tokenizer), format=FORMAT)
    labelled = sides(texts, fraction, config.test_documents)
    both = cached_tokens(folder, labelled, ("train", "test"), encoder)
    train, test = both["train"], both["test"]
    rows = _rows(config, train, context, drop_last=True)
    if not len(rows):
        raise InputError(f"context: expected at most the {len(train.tokens)} tokens of the train split, got {context}")
    return _data(config, texts.content_hash, rows, train, test, tokenizer, context)


def _streamed(config: TextConfig, context: int, seed: int, tokenizer: PreTrainedTokenizerBase | None) -> LoadedData:
    records, fingerprint = open_records(config)
    texts = texts_of(records, fingerprint, config)
    fraction = _fraction(config)
    most = config.test_documents or _TEST_DOCUMENTS_OF_A_STREAM
    split = _split_key(config, texts, fraction, most)
    tokenizer = tokenizer or _tokenizer(config, texts, fraction, split)
    encoder = Encoder(tokenizer, config.workers)
    tokens = key(split=split, tokenizer=tokenizer_hash(tokenizer), format=FORMAT)
    scan = (("test", text) for text in islice((text for text in texts if in_test(text, fraction)), most))
    test = cached_tokens(config.cache / "tokens" / f"{tokens}-test", scan, ("test",), encoder)["test"]
    if not test.documents:
        raise InputError(f"test_fraction: {fraction:g} leaves the test split of the stream empty; try a larger one")
    facts = {"layout": config.layout, "context": context, "seed": seed, "buffer": config.shuffle_buffer}
    stream_hash = key(tokens=tokens, **facts)
    # A source that is streamed is never a `Dataset`, and `Records` does what datasets' `IterableDataset` does.
    stream = TextStream(cast("Records", records), stream_hash, encoder, config, fraction, context=context, seed=seed)
    return _data(config, fingerprint, stream, None, test, tokenizer, context)


def _fraction(config: TextConfig) -> float:
    if config.test_fraction is not None:
        return config.test_fraction
    if config.source in CORPORA:
        return 0.03
    return 0.05 if Path(config.source).expanduser().exists() else 0.001


def _split_key(config: TextConfig, texts: Texts, fraction: float, test_documents: int | None) -> str:
    most = {"documents": config.max_documents, "test": test_documents}
    return key(texts=texts.content_hash, column=config.text_column, fraction=fraction, **most)


def _tokenizer(config: TextConfig, texts: Texts, fraction: float, split: str) -> PreTrainedTokenizerBase:
    if config.tokenizer != "bpe":
        return load_tokenizer(config.tokenizer)
    train = (text for text in texts if not in_test(text, fraction))
    return bpe_tokenizer(train, config.vocab_size, text_hash=split, cache=config.cache)


def _rows(config: TextConfig, tokens: Tokens, context: int, *, drop_last: bool) -> PackedRows | PaddedRows:
    if config.layout == "padded":
        return PaddedRows(tokens, context)
    return PackedRows(tokens, context, drop_last=drop_last)


def _data(
    config: TextConfig,
    content_hash: str,
    train_rows: Rows | RowStream,
    train: Tokens | None,
    test: Tokens,
    tokenizer: PreTrainedTokenizerBase,
    context: int,
) -> LoadedData:
    truncated = config.layout == "padded" and bool(((test.offsets[1:] - test.offsets[:-1]) > context + 1).any())
    facts = {
        "source": config.source,
        "content_hash": content_hash,
        "documents": {"train": train and train.documents, "test": test.documents},
        "tokens": {"train": train and len(train.tokens), "test": len(test.tokens)},
        # None where rows leave part of the text out: bits per byte would have no meaning.
        "test_bytes": None if truncated else test.text_bytes,
        "tokenizer": {"name": config.tokenizer, "hash": tokenizer_hash(tokenizer)},
        "layout": config.layout,
    }
    rows = _rows(config, test, context, drop_last=False)
    return LoadedData(train_rows, rows, vocabulary_size(tokenizer), tokenizer, facts)
