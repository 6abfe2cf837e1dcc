"""The live page over a real socket: what is answered, to whom, and when it changes."""

import base64
import hashlib
import html
import http.client
import json
import re
import threading

import pytest

from softmax_rnn.study import serve as served
from softmax_rnn.study.serve import serve, server


@pytest.fixture
def ask(runs, monkeypatch):
    """Questions to a server of the runs: path → status, headers, text."""
    monkeypatch.setattr(served, "REST", 0)
    running = server(runs, 0)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def question(path, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", running.server_port, timeout=60)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers, text

    question.address = running.server_address
    yield question
    running.shutdown()
    thread.join()
    running.server_close()


def test_the_page_carries_its_version(ask):
    status, headers, page = ask("/")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert "2 of 3 finished, 1 incomplete" in page
    assert ask("/version")[2] == re.search(r'<meta name="live-version" content="(\w+)">', page)[1]


def test_the_policy_allows_the_scripts_of_the_page_and_one_question(ask):
    page = ask("/")[2]
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])
    assert policy.startswith("default-src 'none';")
    assert policy.endswith("connect-src 'self'")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 3
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_new_measurements_are_a_new_version(ask, runs):
    before = ask("/version")[2]
    assert ask("/version")[2] == before
    result = json.loads((runs / "softmax" / "result.json").read_text()) | {"seed": 1}
    (runs / "half" / "result.json").write_text(json.dumps(result))
    assert ask("/version")[2] != before
    assert "3 of 3 finished" in ask("/")[2]


def test_what_cannot_be_read_leaves_the_page_as_it_was(ask, runs):
    before = ask("/")[2]
    (runs / "results.json").write_text("{")
    assert ask("/")[2] == before
    assert ask("/version")[0] == 200


def test_the_machine_is_left_to_the_runs(runs):
    live = served.LivePage(runs)
    first = live.now()
    result = json.loads((runs / "softmax" / "result.json").read_text()) | {"seed": 1}
    (runs / "half" / "result.json").write_text(json.dumps(result))
    assert live.now() == first


def test_nothing_else_is_served_and_to_nobody_else(ask):
    assert ask.address[0] == "127.0.0.1"
    assert ask("/half/config.yaml")[0] == 404
    assert ask("/../runs/half/config.yaml")[0] == 404
    assert ask("/", Host="attacker.example")[0] == 403
    assert ask("/version", Host="localhost:1")[0] == 200


def test_ctrl_c_ends_quietly(runs, monkeypatch, capsys):
    def interrupted(self, poll_interval=0.5):
        raise KeyboardInterrupt

    monkeypatch.setattr(served.ThreadingHTTPServer, "serve_forever", interrupted)
    told = []
    assert serve(runs, 0, told.append) is None
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", told[0])
    assert capsys.readouterr() == ("", "")
