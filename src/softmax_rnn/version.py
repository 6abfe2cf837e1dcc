"""The version of softmax-rnn, written down once."""

__version__ = "0.1.0"
