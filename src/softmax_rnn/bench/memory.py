"""Peak memory of one training step of a variant, in a separate process.

python -m softmax_rnn.bench.memory '{"variant": "gated_softmax", "time": 4096, "key_dim": 64, "heads": 16}'
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from softmax_rnn.machine import current_bytes, peak_bytes


def measure(variant: str, time: int, key_dim: int, heads: int) -> int:
    """Bytes above the inputs at the highest point of forward and backward."""
    from softmax_rnn.attention.variants import VARIANTS
    from softmax_rnn.bench.inputs import random_inputs
    from softmax_rnn.bench.peers import forward_backward, ours

    spec = VARIANTS[variant]
    # A small step first: libraries load and threads start, which takes memory.
    small = random_inputs(spec, time=64, key_dim=key_dim, heads=2)
    forward_backward(ours(spec), small)()
    tensors = random_inputs(spec, time=time, key_dim=key_dim, heads=heads)
    before = current_bytes()
    forward_backward(ours(spec), tensors)()
    return peak_bytes() - before


def in_subprocess(**setting: Any) -> int:
    """`measure` in a fresh process."""
    command = [sys.executable, "-W", "ignore", "-m", "softmax_rnn.bench.memory", json.dumps(setting)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {setting} failed: {done.stderr.strip().splitlines()[-1:]}")
    return int(done.stdout)


if __name__ == "__main__":
    print(measure(**json.loads(sys.argv[1])))
