"""The page of a study in a real browser: drawn, quiet, filtered, narrow, dark, live, and deaf to hostile names."""

import http.server
import threading

import pytest

from report.pages import HOSTILE
from report.study_results import everything, language, results
from softmax_rnn.report.page import page_html, write_page
from softmax_rnn.report.study_page import study_page
from softmax_rnn.study.serve import live

from .conftest import Opened

HOSTILE_LEVELS = {"softmax": 1.8} | {name: 2.0 + i / 10 for i, name in enumerate(HOSTILE)}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies")
    hostile = results(language(HOSTILE_LEVELS, panels=HOSTILE[:2]), title=HOSTILE[0])
    return {
        "demo": write_page(study_page(everything()), folder / "demo.html"),
        "hostile": write_page(study_page(hostile), folder / "hostile.html"),
    }


@pytest.fixture
def context(browser):
    made = []

    def new(width=1280, **options):
        made.append(browser.new_context(viewport={"width": width, "height": 900}, **options))
        return made[-1]

    yield new
    for one in made:
        one.close()


def until(page, expression, seconds=60):
    """Wait until an expression is true; playwright's own way needs eval, which the page's policy forbids."""
    for _ in range(seconds * 10):
        if page.evaluate(expression):
            return True
        page.wait_for_timeout(100)
    return False


def shown(page, table, column):
    return page.eval_on_selector_all(
        f"#{table} tbody tr:not([hidden])", f"rows => rows.map(row => row.cells[{column}].textContent)"
    )


@pytest.mark.parametrize("name", ["demo", "hostile"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "dark")])
def test_every_chart_is_drawn_in_silence(context, pages, name, width, scheme):
    opened = Opened(context(width, color_scheme=scheme).new_page(), pages[name])
    page = opened.page
    assert opened.said == []
    assert len(opened.asked) == 1
    assert page.evaluate("window.__pwned") is None
    marks = page.eval_on_selector_all(
        ".plot", "plots => plots.map(p => p.querySelectorAll('svg .mark-symbol path, svg .mark-rect path').length)"
    )
    assert len(marks) >= 9
    assert min(marks) > 0
    page.eval_on_selector_all("details", "all => all.forEach(one => (one.open = true))")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_table_of_losses_is_filtered_and_sorted(context, pages):
    page = Opened(context().new_page(), pages["demo"]).page
    assert len(shown(page, "final-losses", 0)) == 14
    page.select_option("#final-losses select", label="kjv")
    assert set(shown(page, "final-losses", 1)) == {"kjv"}
    page.fill("#final-losses input", "taylor")
    assert shown(page, "final-losses", 0) == ["taylor_4", "taylor_2", "taylor_1"]
    gap = page.locator("#final-losses thead button", has_text="gap to softmax")
    gap.click()
    gap.click()
    assert shown(page, "final-losses", 0) == ["taylor_1", "taylor_2", "taylor_4"]


def test_a_line_can_be_singled_out(context, pages):
    page = Opened(context().new_page(), pages["demo"]).page
    lines = "#curve-test-kjv .mark-line path"
    before = page.eval_on_selector_all(lines, "all => all.map(line => line.getAttribute('opacity') ?? '1')")
    assert set(before) == {"1"}
    page.locator("#curve-test-kjv .role-legend-label text", has_text="linear_elu").click(force=True)
    faded = f"[...document.querySelectorAll('{lines}')].filter(line => Number(line.getAttribute('opacity') ?? 1) < 1)"
    assert until(page, f"{faded}.length === {len(before) - 1}")


def test_hostile_names_are_read_as_they_are(context, pages):
    page = Opened(context().new_page(), pages["hostile"]).page
    names = set(shown(page, "final-losses", 0))
    assert names == set(HOSTILE_LEVELS)
    assert page.inner_text("h1") == HOSTILE[0]


@pytest.fixture
def live_page():
    """A server whose page changes when told to: its address, and the list of versions it will answer with."""
    versions = ["1"]
    made = {}

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            now = versions[-1]
            if self.path == "/version":
                content = now.encode()
            else:
                made[now] = made.get(now) or live(page_html(study_page(everything() | {"machine": {"date": now}})), now)
                content = made[now]
            self.send_response(200)
            self.send_header("Content-Type", "text/plain" if self.path == "/version" else "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", versions
        server.shutdown()
        thread.join()


def test_a_live_page_loads_the_newer_version_and_stays_in_its_place(context, live_page):
    address, versions = live_page
    page, said = context().new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(address)
    page.wait_for_selector("html.drawn", timeout=60_000)
    page.select_option("#final-losses select", label="kjv")
    page.locator("#final-losses thead button", has_text="variant").click()
    page.evaluate("document.activeElement.blur()")
    page.eval_on_selector("#costs", "one => scrollTo(0, one.getBoundingClientRect().top + scrollY + 40)")
    page.mouse.move(1, 1)
    order = shown(page, "final-losses", 0)
    with page.expect_navigation(timeout=60_000):
        versions.append("2")
    page.wait_for_selector("html.drawn", timeout=60_000)
    assert until(page, "document.querySelector('dl.facts dd')?.textContent === '2'")
    assert until(page, "document.querySelector('#final-losses select')?.value === '=kjv'")
    assert until(page, "Math.abs(document.getElementById('costs').getBoundingClientRect().top + 40) < 3")
    assert shown(page, "final-losses", 0) == order
    assert said == []
