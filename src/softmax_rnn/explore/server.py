"""The page on a local address: which requests are answered, and a shutdown within two seconds.

Only this machine is answered unless a host is named. A page of another origin is refused, no files are
uploaded or served, and the browser is told to fetch nothing from any other server.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from softmax_rnn.errors import InputError
from softmax_rnn.explore.source import Others, Source

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import uvicorn
from fastapi import FastAPI, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL = "127.0.0.1"
HOSTS = ("127.0.0.1", "localhost")
LARGEST_BODY = 200_000
PATHS = re.compile(
    r"/(charts\.js|explore\.js|config|theme\.css|manifest\.json|favicon\.ico|(assets|static)/.*"
    r"|gradio_api/(startup-events|queue/(join|data)|run/predict|cancel|reset|heartbeat/\w+))?"
)
"""What the page asks for; Gradio's other routes (files, uploads, proxies, editors, monitoring) are closed."""
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; manifest-src 'self'; worker-src 'self'"
    " blob:; frame-src 'self'; base-uri 'self'; form-action 'self'"
)


def application(
    source: Source, folder: Path | None = None, others: Others | None = None, *, only_local: bool = True
) -> FastAPI:
    """The page and its two scripts, behind a check of every request."""
    import gradio as gr

    from softmax_rnn.explore.app import build, look
    from softmax_rnn.report.page import chart_library

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/charts.js")
    def charts() -> Response:
        return Response(chart_library(), media_type="text/javascript", headers={"Cache-Control": "max-age=3600"})

    @app.get("/explore.js")
    def script() -> Response:
        text = files("softmax_rnn.explore").joinpath("explore.js").read_text(encoding="utf-8")
        return Response(text, media_type="text/javascript")

    app.add_middleware(Checked, only_local=only_local)
    return gr.mount_gradio_app(
        app,
        build(source, folder, others),
        path="/",
        ssr_mode=False,
        footer_links=[],
        max_file_size=0,
        **look(),  # pyright: ignore[reportArgumentType]
    )


class Checked:
    """Answers a request or refuses it, and tells the browser what the page may do."""

    def __init__(self, app: ASGIApp, only_local: bool) -> None:
        self.app, self.only_local = app, only_local
        # A Space is shown in a frame of another page.
        self.policy = f"{POLICY}; frame-ancestors 'self'" if only_local else POLICY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        refusal = None if scope["type"] == "lifespan" else refuse(scope, self.only_local)
        if refusal is not None:
            await Response(f"{refusal}\n", 403, media_type="text/plain")(scope, receive, send)
            return

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = self.policy
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
            await send(message)

        await self.app(scope, receive, with_policy)


def refuse(scope: Scope, only_local: bool) -> str | None:
    """Why a request is not answered, or None."""
    headers = Headers(scope=scope)
    host = headers.get("host", "")
    if only_local and host.rsplit(":", 1)[0] not in HOSTS:
        return "only for this machine"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return "only for pages of this server"
    if scope["type"] != "http" or not PATHS.fullmatch(scope["path"]):
        return "this page has nothing there"
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not length.isdigit() or int(length) > LARGEST_BODY:
        return f"a request has at most {LARGEST_BODY:,} bytes"
    return None


def serve(
    source: Source,
    folder: Path | None,
    host: str,
    port: int,
    ready: Callable[[str], None],
    others: Others | None = None,
) -> None:
    """Serve until Ctrl-C; ``ready`` is called with the address. Requests that are still open at the end are cut off."""
    listening = _listen(host, port)
    shown = LOCAL if host in ("0.0.0.0", "::") else host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    app = application(source, folder, others, only_local=host in HOSTS)
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1, lifespan="on")

    def begin() -> None:
        # Not earlier: two threads must not import the package at the same time, and the page is drawn meanwhile.
        source.start()
        ready(address)

    server = _Server(config, begin)
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        return
    finally:
        listening.close()


class _Server(uvicorn.Server):
    """Says when it listens, and ends at once: what a page is still waiting for is cut off, without a traceback."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        super().handle_exit(sig, frame)
        self.force_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        threading.Thread(target=self._ready, daemon=True).start()


def _listen(host: str, port: int) -> socket.socket:
    try:
        socket.getaddrinfo(host, port)
        if not host:
            raise socket.gaierror(0, "an empty name")
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a name of a machine"
        raise InputError(f"host: {host!r} cannot be used ({reason}); 127.0.0.1 is this machine") from error
    try:
        return socket.create_server((host, port))
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        raise InputError(f"port: {host}:{port} cannot be used ({reason}); set another with --port") from error
