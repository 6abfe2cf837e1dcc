"""Attention as a value: the spec, the table of variants, the algebra, and the functions that compute it."""

from softmax_rnn.attention import ranged as ranged  # its parts register themselves, so that JSON can name them
