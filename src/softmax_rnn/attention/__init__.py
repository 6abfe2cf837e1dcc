"""Attention as a value: the spec, the table of variants, the algebra, and the functions that compute it."""

from softmax_rnn.attention.ranges import kinds as kinds  # its parts register themselves, so that JSON can name them
