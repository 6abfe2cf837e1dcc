"""The Space starts the same application: on all addresses, with the model that the environment names."""

import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from explore.models import save_tiny

SPACE = Path(__file__).parents[2] / "space"


def test_the_front_matter_is_what_spaces_read():
    front = yaml.safe_load((SPACE / "README.md").read_text(encoding="utf-8").split("---")[1])
    assert front["sdk"] == "docker"
    assert str(front["app_port"]) in (SPACE / "Dockerfile").read_text(encoding="utf-8")
    assert len(front["short_description"]) <= 60


@pytest.mark.slow
def test_the_space_starts(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = save_tiny(tmp_path / "model")
    environment = os.environ | {"PORT": str(port), "SOFTMAX_RNN_MODEL": str(folder)}
    process = subprocess.Popen([sys.executable, SPACE / "app.py"], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert "listening" in process.stdout.readline()
        answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/")
        assert b"Softmax attention" in answer.read()
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    finally:
        process.terminate()
        process.communicate(timeout=30)
