"""Makes the pictures of the README and the documents: the report in a browser, the terminal, and what was measured.

    python docs/pictures/make.py           everything
    python docs/pictures/make.py terminal  one part: report, explore, terminal, headline or figures

The report and the live page need Chromium and playwright, which `make test-browser` installs. All numbers come from
the dated files in benchmarks/; `explore` says how fast the live page answered.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BENCHMARKS = ROOT / "benchmarks"
STUDY = BENCHMARKS / "2026-11-18-quick.json"
TERMS = BENCHMARKS / "2026-11-16-terms.json"
# The paper's sections and recall, and the chart of each that is kept.
SECTIONS = {
    "sec4.1-denominator": "gaps",
    "sec4.2-scaling": "gaps",
    "sec4.3-linear": "gaps",
    "sec4.4-orders": "orders-chart",
    "sec4.5-ablation": "gaps",
    "recall": "recall-chart",
}

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
DESKTOP, PHONE = {"width": 1100, "height": 760}, {"width": 390, "height": 800}
# Name, window, pixels a unit, theme, and what stands at the top of the window.
SCREENSHOTS: tuple[tuple[str, Any, float, Any, str], ...] = (
    ("report-light", DESKTOP, 1.4, "light", "h1"),
    ("report-dark", DESKTOP, 1.4, "dark", "#Head-curves"),
    ("report-phone", PHONE, 2, "light", "#gaps"),
)
COLUMNS = 100
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def report() -> None:
    """The page of the quick study: its verdicts on light, its curves on dark, a chart on a phone."""
    from playwright.sync_api import sync_playwright

    from softmax_rnn.report.page import write_page
    from softmax_rnn.report.study_page import study_page

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = write_page(study_page(_read(STUDY)), Path(folder) / "report.html")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, window, scale, theme, top in SCREENSHOTS:
            page = browser.new_page(viewport=window, device_scale_factor=scale, color_scheme=theme)
            page.goto(path.as_uri())
            page.wait_for_selector("html.drawn")
            page.eval_on_selector(top, "one => scrollTo(0, one.getBoundingClientRect().top + scrollY - 16)")
            page.screenshot(path=HERE / f"{name}.png")
            page.close()
        browser.close()


SONNET = "Shall I compare thee to a summer's day? Thou art more lovely and more temperate. Rough winds do shake the "
LONG = (
    SONNET
    + "darling buds of May, and summer's lease hath all too short a date. Sometime too hot the eye of heaven "
    + "shines, and often is his gold complexion dimmed, and every fair declines."
)


def explore() -> None:
    """The live page with SmolLM2, a picture of each way to look, and how long it took to answer."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "softmax_rnn", "explore", "smollm2", "--port", "0", "--no-browser"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport=DESKTOP, device_scale_factor=1.2, color_scheme="light")
        page.set_default_timeout(60_000)
        page.goto("about:blank")
        start = time.perf_counter()
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        address = server.stdout.readline().split(": ", 1)[1].split(" ")[0]
        asked = time.perf_counter() - start
        page.goto(address)
        page.wait_for_selector("#order-words")
        painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000")
        print(f"first paint {asked + painted:.1f} s after the command", flush=True)
        page.wait_for_selector("#order-bars svg")
        print(f"the first text is analysed after {time.perf_counter() - start:.1f} s", flush=True)
        page.get_by_label("Text, up to").first.fill(LONG)
        took = _answer(page, lambda: page.get_by_role("button", name="Read").click())
        tokens = page.locator("#query input[type=range]").get_attribute("max")
        print(f"a new text, {tokens} tokens: {took:.2f} s", flush=True)
        box = page.locator("#order input[type=number]")
        moves = sorted(_answer(page, lambda order=order: box.fill(str(order))) for order in range(10, 31))
        print(f"a move of the slider: median {moves[10] * 1e3:.0f} ms, slowest {moves[-1] * 1e3:.0f} ms", flush=True)
        box.fill("6")
        _picture(page, "order")
        page.get_by_role("tab", name="The RNN at work").click()
        page.get_by_role("button", name="Play").click()
        page.wait_for_selector("#rnn-curves svg")
        page.get_by_role("button", name="Pause").click()
        page.locator("#rnn-token input[type=number]").fill("15")
        page.get_by_text("Token 15 of").wait_for()
        _picture(page, "rnn")
        page.get_by_role("tab", name="Take it apart").click()
        page.locator("#start input").fill("near_far_64")
        page.locator("ul[role=listbox] li").first.wait_for()
        page.locator("#start input").press("Enter")
        _picture(page, "apart")
        page.get_by_role("tab", name="Two models").click()
        page.get_by_role("button", name="Continue").click()
        page.locator("#second-model").get_by_text("24 tokens").wait_for()
        _picture(page, "models")
        browser.close()
        start = time.perf_counter()
        server.send_signal(signal.SIGINT)
        server.wait()
        print(f"Ctrl-C: ended after {time.perf_counter() - start:.2f} s", flush=True)


def _picture(page: Any, name: str) -> None:
    """The whole page, once its charts are drawn."""
    page.wait_for_timeout(1500)
    page.screenshot(path=HERE / f"explore-{name}.png", full_page=True)


def _answer(page: Any, act: Callable[[], object]) -> float:
    """Seconds from an action until the words of the page are others."""
    before = page.locator("#order-words").inner_html()
    start = time.perf_counter()
    act()
    page.wait_for_function(
        "before => document.querySelector('#order-words').innerHTML !== before", arg=before, polling=5
    )
    return time.perf_counter() - start


def terminal() -> None:
    """What commands print."""
    from rich.text import Text

    from softmax_rnn.report import terminal as printed

    console = _console()
    with patch.object(printed, "OUT", console):
        printed.print_claims(_read(STUDY)["claims"])
    _save(console, "terminal-verdicts", "softmax-rnn study quick")
    console = _console()
    console.print(Text.from_ansi(_output("explain", "taylor_4")))
    _save(console, "terminal-explain", "softmax-rnn explain taylor_4")


WORDS = {
    "taylor_2": "Taylor order 2",
    "softmax_l2": "L2 norm, no denominator",
    "softmax_gate_over_t": "gate, no denominator",
    "linear_elu": "linear attention",
    "taylor_1": "Taylor order 1",
}


def headline() -> None:
    """The picture at the top of the README: the gaps of the quick study, with words for names."""
    import altair as alt

    rows = []
    for row in _read(STUDY)["summary"]["final"]:
        gap = row["gap"]
        if row["grid"] != "recall" and row["variant"] in WORDS and gap and gap["mean"] is not None:
            low, high = gap["mean"] - gap["half"], gap["mean"] + gap["half"]
            rows.append({"part": WORDS[row["variant"]], "gap": gap["mean"], "low": low, "high": high})
    order = list(WORDS.values())
    part = alt.Y("part:N", sort=order, title=None)
    title = "test loss above softmax, nats per byte"
    bars = alt.Chart(alt.Data(values=rows)).mark_rule(strokeWidth=3, color="#0072b2")
    bars = bars.encode(y=part, x=alt.X("low:Q", title=title), x2="high:Q")
    dots = alt.Chart(alt.Data(values=rows)).mark_circle(size=140, opacity=1, color="#0072b2")
    dots = dots.encode(y=part, x=alt.X("gap:Q", title=title))
    softmax = alt.Chart(alt.Data(values=[{"x": 0}])).mark_rule(strokeDash=[5, 4]).encode(x="x:Q")
    chart = (softmax + bars + dots).properties(width=560, height=180, padding=12)
    chart = chart.configure_axis(labelFontSize=14, titleFontSize=14, titleFontWeight="normal", labelLimit=260)
    chart.configure_view(stroke=None).save(HERE / "gaps.png", ppi=110)


def figures() -> None:
    """The figures in benchmarks/, each from the numbers beside it."""
    from softmax_rnn.report.bench_charts import attention_chart, decode_chart, model_chart
    from softmax_rnn.report.figures import save_chart
    from softmax_rnn.report.study_page import study_page
    from softmax_rnn.report.terms_page import terms_page

    benches = {"attention": attention_chart, "decode": decode_chart, "model": model_chart}
    for name, chart in benches.items():
        save_chart(chart(_numbers(_dated(name))), BENCHMARKS, _dated(name), ("svg",))
    pages = {STUDY.stem: study_page, TERMS.stem: terms_page} | dict.fromkeys(map(_dated, SECTIONS), study_page)
    charts = {
        (name, block.id): block for name, page in pages.items() for block in page(_numbers(name)).charts()
    }  # fmt: skip
    wanted = [
        (STUDY.stem, "gaps", "gaps", ("png",)),
        (STUDY.stem, "curve-test-language", "curves", ("svg",)),
        (TERMS.stem, "losses", "", ("svg",)),
        (TERMS.stem, "terms", "heat-map", ("svg",)),
        *((_dated(section), block, block, ("svg",)) for section, block in SECTIONS.items()),
    ]
    for name, block, suffix, formats in wanted:
        chart = charts[name, block]
        save_chart(chart.chart, BENCHMARKS, f"{name}-{suffix}".rstrip("-"), formats, title=chart.caption)


def _dated(name: str) -> str:
    """The last measurement of that name."""
    return max(path.stem for path in BENCHMARKS.glob(f"????-??-??-{name}.json"))


def _numbers(name: str) -> dict[str, Any]:
    return _read(BENCHMARKS / f"{name}.json")


def _read(path: Path) -> dict[str, Any]:
    from softmax_rnn.study.result_file import is_results, read_results

    if is_results(path):
        return read_results(path)
    return json.loads(path.read_text(encoding="utf-8"))


def _console() -> Any:
    from rich.console import Console

    return Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")


def _output(*command: str) -> str:
    """What a command prints in a terminal of this width."""
    settings = os.environ | {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "softmax_rnn", *command], env=settings, capture_output=True, text=True, check=True
    )
    return done.stdout


def _save(console: Any, name: str, title: str) -> None:
    """What was printed as an SVG that asks for no font from a network."""
    from rich._export_format import CONSOLE_SVG_FORMAT

    own = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    own = re.sub(r"font-family: Fira Code[^;]*;", f"font-family: {FONTS};", own)
    svg = console.export_svg(title=title, code_format=own, unique_id=name)
    (HERE / f"{name}.svg").write_text(svg, encoding="utf-8")


PARTS = {"report": report, "explore": explore, "terminal": terminal, "headline": headline, "figures": figures}

if __name__ == "__main__":
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := set(wanted) - set(PARTS):
        sys.exit(f"unknown part {sorted(unknown)[0]!r}; expected one of {', '.join(PARTS)}")
    for part in wanted:
        PARTS[part]()
