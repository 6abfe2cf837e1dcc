"""The report of a study on a local address, rebuilt when its runs have measured more.

The served copy differs from the file in two ways: a script that asks whether there is a newer version, and a content
security policy that allows this one request. Nothing else of the folder is served, and only to this machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import re
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path

from softmax_rnn.errors import InputError
from softmax_rnn.report.page import page_html
from softmax_rnn.report.study_page import study_page
from softmax_rnn.study.folders import results_of

ADDRESS = "127.0.0.1"
HOSTS = ("127.0.0.1", "localhost")
REST = 10
"""After building the page, wait this many times as long as building took."""
WATCHED = ("results.json", "config.yaml", "metrics.jsonl", "result.json")
_POLICY = re.compile(r'(?<=http-equiv="Content-Security-Policy" content=")[^"]*')


class LivePage:
    """The page of a folder, rebuilt when a file has changed, but seldom enough to leave the machine to the runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._content = b""
        self._version = ""
        self._rest_until = 0.0

    def now(self) -> tuple[str, bytes]:
        """The page and its version; the previous one while a changed file cannot be read."""
        with self._lock:
            start = time.monotonic()
            version = self._files()
            if version != self._version and start >= self._rest_until:
                try:
                    self._content = live(page_html(study_page(results_of([self._folder]))), version)
                    self._version = version
                except (InputError, OSError):
                    if not self._content:
                        raise
                self._rest_until = start + REST * (time.monotonic() - start)
            return self._version, self._content

    def _files(self) -> str:
        """A text that differs whenever one of the files has changed."""
        digest = hashlib.sha256()
        for place in ("", "runs/*/", "*/"):
            for name in WATCHED:
                for path in sorted(self._folder.glob(f"{place}{name}")):
                    digest.update(f"{path}\0{_stamp(path)}\0".encode())
        return digest.hexdigest()[:16]


def _stamp(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return "gone"
    return f"{status.st_mtime_ns} {status.st_size}"


def live(page: str, version: str) -> bytes:
    """The page with the script that looks for newer versions, and a policy that allows it."""
    script = files("softmax_rnn.report").joinpath("templates/live.js").read_text(encoding="utf-8")
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()

    def allow(match: re.Match[str]) -> str:
        policy = html.unescape(match[0]).replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
        return html.escape(f"{policy}; connect-src 'self'")

    page = _POLICY.sub(allow, page, count=1)
    page = page.replace("</head>", f'<meta name="live-version" content="{version}">\n</head>', 1)
    head, end = page.rsplit("</body>", 1)
    return f"{head}<script>{script}</script>\n</body>{end}".encode("utf-8", "replace")


def server(folder: Path, port: int) -> ThreadingHTTPServer:
    """A server for the folder's page, bound to this machine alone; port 0 takes a free one."""
    page = LivePage(folder)
    page.now()  # a folder without runs is refused before anything is served

    class Answers(BaseHTTPRequestHandler):
        """GET / is the page, GET /version its version."""

        def do_GET(self) -> None:
            """Answer, if the request comes from a page on this machine."""
            host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
            if host not in HOSTS:
                self._send(HTTPStatus.FORBIDDEN, "text/plain", b"only for this machine\n")
            elif self.path == "/version":
                self._send(HTTPStatus.OK, "text/plain", page.now()[0].encode())
            elif self.path in ("/", "/report.html"):
                self._send(HTTPStatus.OK, "text/html", page.now()[1])
            else:
                self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is one page: /\n")

        def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            with contextlib.suppress(ConnectionError):  # the reader has gone
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """No log line per request."""

    try:
        return ThreadingHTTPServer((ADDRESS, port), Answers)
    except OSError as error:
        raise InputError(f"port: {port} cannot be used ({error.strerror}); set another with --port") from error


def serve(folder: Path, port: int, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; ``ready`` is called with the address."""
    with server(folder, port) as running:
        ready(f"http://{ADDRESS}:{running.server_port}/")
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            return
