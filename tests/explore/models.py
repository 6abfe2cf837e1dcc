"""A model of a few thousand weights with a tokenizer of bytes: what the page looks at in these tests."""

from model.tiny import tiny_model
from softmax_rnn.data.tokenisers import byte_tokenizer
from softmax_rnn.explore.source import Source


def byte_model(variant="softmax"):
    return tiny_model(variant, vocab_size=257, max_position_embeddings=256)


def tiny_source(name="a tiny model"):
    return Source(name, lambda: (byte_model(), byte_tokenizer())).start()


def save_tiny(folder, variant="softmax"):
    """The same model as a folder."""
    byte_model(variant).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder
