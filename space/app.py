"""The live page as a Hugging Face Space: the same application, on the port that Spaces listen to."""

from __future__ import annotations

import os

from softmax_rnn.explore.server import serve
from softmax_rnn.explore.source import source

if __name__ == "__main__":
    port = int(os.environ.get("PORT", "7860"))
    name = os.environ.get("SOFTMAX_RNN_MODEL") or None
    serve(source(name), None, "0.0.0.0", port, lambda address: print(f"listening: {address}", flush=True))
