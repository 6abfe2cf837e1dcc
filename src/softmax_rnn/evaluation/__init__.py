"""The lm-evaluation-harness with our models in it; needs the extra ``eval``."""
