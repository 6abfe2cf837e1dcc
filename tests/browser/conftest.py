"""A real browser, and pages opened in it under watch: every message, error and request is kept."""

import shutil

import pytest
from playwright.sync_api import sync_playwright

from report.pages import HARMLESS, HOSTILE, every_block
from softmax_rnn.report.page import write_page

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class Opened:
    """A page in the browser, with what it said and what it asked for."""

    def __init__(self, page, path):
        self.page, self.said, self.asked = page, [], []
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html.drawn", timeout=60_000)


@pytest.fixture(scope="session")
def browser():
    chromium = shutil.which("chromium")
    assert chromium, "these tests need Chromium; `make test-browser` installs it"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return {
        "harmless": write_page(every_block(HARMLESS), folder / "harmless.html"),
        "hostile": write_page(every_block(HOSTILE), folder / "hostile.html"),
    }


@pytest.fixture
def visit(browser, paths):
    """Open one of the pages; keyword arguments go to the browser's context."""
    contexts = []

    def open_page(name="harmless", width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        return Opened(context.new_page(), paths[name])

    yield open_page
    for context in contexts:
        context.close()
