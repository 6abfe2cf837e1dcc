"""Who is answered: this machine and this page, and nothing that the page does not ask for itself."""

import asyncio

import pytest

from softmax_rnn.explore.server import LARGEST_BODY, POLICY, Checked

ASKED = [
    "/",
    "/config",
    "/charts.js",
    "/explore.js",
    "/assets/index.js",
    "/gradio_api/queue/join",
    "/gradio_api/queue/data",
    "/gradio_api/heartbeat/a1",
    "/gradio_api/run/predict",
    "/gradio_api/cancel",
]
CLOSED = [
    "/gradio_api/file=/etc/passwd",
    "/gradio_api/file/etc/passwd",
    "/gradio_api/proxy=http://evil.example",
    "/gradio_api/upload",
    "/gradio_api/call/read",
    "/gradio_api/vibe-edit/",
    "/gradio_api/run-history/connect",
    "/gradio_api/mcp/",
    "/gradio_api/deep_link",
    "/monitoring",
    "/docs",
    "//gradio_api/upload",
]
HERE = {"host": "127.0.0.1:7860"}
FORGED = [
    ({"host": "evil.example"}, "only for this machine"),
    ({"host": "127.0.0.1.evil.example:7860"}, "only for this machine"),
    ({}, "only for this machine"),
    (HERE | {"origin": "http://evil.example"}, "only for pages of this server"),
    (HERE | {"origin": "http://127.0.0.1:9"}, "only for pages of this server"),
    (HERE | {"origin": "null"}, "only for pages of this server"),
]


def ask(path, headers, kind="http", only_local=True):
    """The status, the headers and the text of the answer; an application that says yes stands behind the check."""
    sent = []

    async def yes(scope, receive, send):
        await send({"type": f"{kind}.response.start", "status": 200, "headers": []})
        await send({"type": f"{kind}.response.body", "body": b"yes"})

    async def receive():
        raise AssertionError("the body of a request is not read by the check")

    async def send(message):
        sent.append(message)

    lines = [(name.encode(), value.encode()) for name, value in headers.items()]
    extensions = {"websocket.http.response": {}}
    scope = {"type": kind, "path": path, "method": "POST", "headers": lines, "extensions": extensions}
    asyncio.run(Checked(yes, only_local)(scope, receive, send))
    start, body = sent
    return start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, body["body"].decode().strip()


@pytest.mark.parametrize(("headers", "said"), FORGED)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_other_machines_and_other_pages_are_refused(headers, said, kind):
    for path in ASKED:
        assert ask(path, headers, kind)[::2] == (403, said)


@pytest.mark.parametrize("path", CLOSED)
def test_what_the_page_does_not_use_is_closed(path):
    assert ask(path, HERE)[::2] == (403, "this page has nothing there")


def test_there_are_no_websockets():
    assert ask("/gradio_api/queue/join", HERE, "websocket")[::2] == (403, "this page has nothing there")


@pytest.mark.parametrize(
    "length",
    [{"content-length": str(LARGEST_BODY + 1)}, {"content-length": "-1"}, {"transfer-encoding": "chunked"}],
)
def test_long_requests_are_refused(length):
    assert ask("/gradio_api/queue/join", HERE | length)[::2] == (403, "a request has at most 200,000 bytes")


@pytest.mark.parametrize("path", ASKED)
def test_this_machine_is_answered_and_the_browser_is_told_to_ask_nobody_else(path):
    for host in ("127.0.0.1:7860", "localhost:9"):
        status, headers, text = ask(path, {"host": host, "origin": f"http://{host}", "content-length": "9"})
        assert (status, text) == (200, "yes")
        assert headers["content-security-policy"] == f"{POLICY}; frame-ancestors 'self'"
        assert headers["x-content-type-options"] == "nosniff"


def test_a_space_answers_its_own_host_and_may_be_framed():
    here = {"host": "name.hf.space"}
    status, headers, _ = ask("/", here | {"origin": "https://name.hf.space"}, only_local=False)
    assert status == 200
    assert headers["content-security-policy"] == POLICY
    assert ask("/", here | {"origin": "https://evil.example"}, only_local=False)[0] == 403
