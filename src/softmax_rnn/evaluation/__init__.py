"""The lm-evaluation-harness with our models in it; needs ``pip install softmax-rnn[eval]``."""
