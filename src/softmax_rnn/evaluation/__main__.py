"""The harness's command with our model registered: ``python -m softmax_rnn.evaluation --model softmax_rnn …``."""

from __future__ import annotations

from lm_eval.__main__ import cli_evaluate

import softmax_rnn.evaluation.harness  # noqa: F401  registers the model


def main() -> None:
    """What ``lm_eval`` does, with the same arguments."""
    cli_evaluate()


if __name__ == "__main__":
    main()
