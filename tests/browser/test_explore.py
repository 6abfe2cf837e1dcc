"""The live page in a real browser: each tab used as a person would, without a network, closed without a trace."""

import gc
import http.client
import re
import signal
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import psutil
import pytest
import uvicorn

from explore.models import save_tiny, tiny_source
from softmax_rnn.attention.formula import formula
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.training import run_training
from softmax_rnn.explore.source import Others
from softmax_rnn.model import streaming

# Gradio and what it stands on warn of their own future.
pytestmark = pytest.mark.filterwarnings("ignore")
PATIENCE = 60_000
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
ROUNDS, MOVES = 3, 200
MOST_GROWTH = 40_000_000
"""Bytes of memory that the process may gain in the rounds after the first."""


class Running:
    """A server in this process, and the texts that its pages keep."""

    def __init__(self, address, texts):
        self.address, self.texts = address, texts


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    task = {"source": "mqar", "vocab_size": 32, "length": 16, "pairs": 2, "train_examples": 64, "test_examples": 16}
    for seed in (1, 2):
        settings = {"data": task, "steps": 2, "batch_size": 8, "seed": seed, "model": {"num_hidden_layers": 1}}
        run_training(resolve(settings), folder / f"seed-{seed}", quiet=True)
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A converted model in a folder."""
    return str(save_tiny(tmp_path_factory.mktemp("models") / "converted", "taylor_2"))


@pytest.fixture(scope="module")
def running(runs, other):
    from softmax_rnn.explore import app, server

    made = []
    texts = app.Texts

    def kept(source):
        made.append(texts(source))
        return made[-1]

    app.Texts = kept
    try:
        page = server.application(tiny_source(), runs, Others([other]))
    finally:
        app.Texts = texts
    config = uvicorn.Config(page, host="127.0.0.1", port=0, log_level="error", timeout_graceful_shutdown=1)
    serving = uvicorn.Server(config)
    thread = threading.Thread(target=serving.run, daemon=True)
    thread.start()
    while not serving.started:
        time.sleep(0.05)
    yield Running(f"http://127.0.0.1:{serving.servers[0].sockets[0].getsockname()[1]}/", made[0])
    serving.should_exit = True
    thread.join(10)


@pytest.fixture
def visit(browser, running):
    contexts = []

    def open_page(width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 1000}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: page.said.append(f"error: {error}"))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(running.address)
        page.wait_for_selector("#order-bars svg")
        return page

    yield open_page
    for context in contexts:
        context.close()


def slide(page, name, value):
    page.locator(f"#{name} input[type=number]").fill(str(value))


def says(page, where, text):
    page.wait_for_function(
        "([where, text]) => document.querySelector(where)?.innerText.includes(text)", arg=[where, text]
    )


def tab(page, name):
    page.get_by_role("tab", name=name).click()


def choose(page, menu, text):
    box = page.locator(f"#{menu} input")
    box.click()
    box.fill(text)
    page.locator("ul[role=listbox] li").first.wait_for()
    box.press("Enter")


def test_order_by_order(visit, running):
    page = visit()
    says(page, "#order-words", "Cut after order 8")
    slide(page, "order", 21)
    says(page, "#order-words", "Cut after order 21")
    slide(page, "layer", 1)
    slide(page, "query", 5)
    says(page, "#order-words", "Query 5")
    before = page.locator("#order-bars .plot").get_attribute("data-chart")
    choose(page, "method", "Chebyshev², on the true range of the row")
    says(page, "#order-words", "This polynomial has no order 21; 20 is shown")
    assert page.locator("#order-bars .plot").get_attribute("data-chart") != before
    assert page.locator("#order-words img").count() == 3
    assert all(page.locator("#order-words img").nth(n).get_attribute("alt") for n in range(3))
    assert page.locator("#order-words .map i").count() == 3
    hostile = "<img src=x onerror=alert(1)> ${1+1} {{value}}"
    page.get_by_label("Text, up to").first.fill(hostile)
    page.get_by_role("button", name="Read").click()
    says(page, "#order-words", f"Query {len(hostile)}")
    assert page.locator("#order-words p img").count() == 0
    assert "${1+1} {{value}}" in page.locator("#order-words .words").first.inner_text()
    page.get_by_label("Text, up to").first.fill("x" * 400)
    page.get_by_role("button", name="Read").click()
    says(page, "#order-words", "text: expected 2 to 128 tokens, got 400")
    page.get_by_label("Text, up to").first.fill("it lives on")
    page.get_by_role("button", name="Read").click()
    says(page, "#order-words", "Query 11")
    assert page.said == []
    assert {url for url in page.asked if not url.startswith((running.address, "data:", "blob:"))} == set()


def test_take_it_apart(visit):
    page = visit()
    tab(page, "Take it apart")
    page.wait_for_selector("#apart-said math mfrac")
    choose(page, "start", "softmax_l2")
    says(page, "#apart-said", "softmax_l2")
    says(page, "#apart-python", "L2Norm()")
    choose(page, "part-output_norm", "none")
    page.wait_for_function("!document.querySelector('#apart-python').innerText.includes('L2Norm')")
    choose(page, "part-output_gate", "output_gate")
    says(page, "#apart-python", "OutputGate()")
    options = page.locator("#options-output_gate textarea")
    page.wait_for_function("document.querySelector('#options-output_gate textarea')?.value == 'after_norm=false'")
    options.fill("")
    options.press_sequentially("after_norm=true")
    says(page, "#apart-said", "output_gate: after_norm needs an output_norm")
    choose(page, "part-output_norm", "rms")
    says(page, "#apart-python", "after_norm=True")
    page.wait_for_selector("#apart-curves svg")
    choose(page, "start", "sata_4")
    says(page, "#apart-json", "0.0416")
    assert AttentionSpec.from_json(page.locator("#apart-json .cm-content").inner_text()) == VARIANTS["sata_4"]
    assert page.said == []


def test_the_rnn_at_work(visit):
    page = visit()
    tab(page, "The RNN at work")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("Number(/Token (\\d+) of/.exec(document.querySelector('#rnn-frame').innerText)?.[1]) > 2")
    page.wait_for_selector("#rnn-curves svg")
    page.get_by_role("button", name="Pause").click()
    page.wait_for_timeout(600)
    before = page.locator("#rnn-frame").inner_text()
    page.wait_for_timeout(600)
    assert page.locator("#rnn-frame").inner_text() == before
    slide(page, "rnn-token", 60)
    says(page, "#rnn-frame", "Token 60 of")
    assert page.locator("#rnn-state img").count() == 1
    mark = "[...document.querySelectorAll('#rnn-curves .mark-rule line')].at(-1).getBoundingClientRect().x"
    at_60 = page.evaluate(mark)
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("Number(/Token (\\d+) of/.exec(document.querySelector('#rnn-frame').innerText)?.[1]) > 62")
    page.get_by_role("button", name="Pause").click()
    assert page.evaluate(mark) > at_60  # the charts mark the token that is shown
    choose(page, "rnn-variant", "softmax")
    slide(page, "rnn-token", 13)
    says(page, "#rnn-frame", "13 of 13 keys are held exactly")
    says(page, "#rnn-state", "keys and values themselves")
    assert page.said == []


def test_two_models_one_prompt(visit):
    page = visit()
    tab(page, "Two models")
    slide(page, "new-tokens", 4)
    choose(page, "other", "variant: softmax")
    page.get_by_role("button", name="Continue").click()
    for place in ("#first-model", "#second-model"):
        says(page, place, "4 tokens")
    first, second = (page.locator(f"{place} .stream").inner_text() for place in ("#first-model", "#second-model"))
    assert first == second  # softmax is the same function
    slide(page, "other-order", 3)
    choose(page, "other", "Chebyshev², on the range of 2D kept keys")
    page.get_by_role("button", name="Continue").click()
    says(page, "#first-model", "has no order 3; the nearest is 2")
    assert page.said == []


def test_a_converted_model_from_its_folder(visit, other):
    page = visit()
    tab(page, "Two models")
    slide(page, "new-tokens", 4)
    choose(page, "other", f"model: {other}")
    page.get_by_role("button", name="Continue").click()
    for place in ("#first-model", "#second-model"):
        says(page, place, "4 tokens")
        chances = [int(one) for one in page.locator(f"{place} rt").all_inner_texts()]
        assert len(chances) == 4 and all(0 <= one <= 100 for one in chances)
    assert "a tiny model" in page.locator("#first-model").inner_text()
    assert other in page.locator("#second-model").inner_text()
    assert page.said == []


@pytest.mark.parametrize("how", ["closed", "stopped"])
def test_generation_ends_with_its_page(visit, running, monkeypatch, how):
    made, real = [], streaming.stream

    def slowly(*arguments):
        for one in real(*arguments):
            made.append(one)
            time.sleep(0.1)
            yield one

    monkeypatch.setattr(streaming, "stream", slowly)
    page = visit()
    tab(page, "Two models")
    slide(page, "new-tokens", 128)
    choose(page, "other", "variant: softmax")
    page.get_by_role("button", name="Continue").click()
    says(page, "#first-model", "2 tokens")
    if how == "closed":
        page.context.close()
    else:
        page.locator("#generate-stop").click()
    count = -1
    while count != len(made):
        count = len(made)
        time.sleep(1)
    assert len(made) < 2 * 128
    if how == "closed":
        assert kept_in_the_end(running) == 0


def kept_in_the_end(running):
    """How many texts are left once the server has noticed that pages are closed."""
    deadline = time.monotonic() + 30
    while running.texts.kept and time.monotonic() < deadline:
        time.sleep(0.2)
    return running.texts.kept


def test_runs_are_compared_in_a_page_of_their_own(visit):
    page = visit()
    tab(page, "Runs")
    page.get_by_role("button", name="Compare").click()
    frame = page.frame_locator("#runs-report iframe")
    frame.locator("html.drawn").wait_for()
    assert frame.locator("h1").count() == 1
    assert page.locator("#runs-report iframe").get_attribute("sandbox") == "allow-scripts"


def test_eight_pages_and_two_hundred_moves_leave_no_memory_behind(visit, running, capfd):
    memory = []
    for _ in range(ROUNDS):
        pages = [visit(width=700) for _ in range(8)]
        for n, page in enumerate(pages):
            page.get_by_label("Text, up to").first.fill(f"text number {n}")
            page.get_by_role("button", name="Read").click()
        for page in pages:
            says(page, "#order-words", "Query 13")
        last = {}
        for move in range(MOVES):
            last[move % 8] = move * 7 % 41
            slide(pages[move % 8], "order", last[move % 8])
        for n, page in enumerate(pages):
            says(page, "#order-words", f"Cut after order {last[n]},")
            assert f"number{n}" in "".join(page.locator(".words").first.inner_text().split())
            assert page.said == []
            page.context.close()
        assert kept_in_the_end(running) == 0
        gc.collect()
        memory.append(psutil.Process().memory_info().rss)
    assert memory[-1] - memory[0] < MOST_GROWTH
    assert "Traceback" not in capfd.readouterr().err


def test_every_row_of_the_table_is_a_starting_point(visit):
    page = visit()
    tab(page, "Take it apart")
    page.wait_for_selector("#apart-said math")
    for name in VARIANTS:
        page.locator("#start input").click()
        page.get_by_role("option", name=f"{VARIANTS.short(name)}  ({VARIANTS.row(name).group})", exact=True).click()
        page.wait_for_function(
            "text => document.querySelector('#apart-said .formula')?.getAttribute('aria-label') == text",
            arg=formula(VARIANTS[name]),
        )
        assert VARIANTS.short(name) in page.locator("#apart-said").inner_text()
    assert page.said == []


def test_every_control_has_a_name_and_works_with_the_keyboard(visit):
    page = visit()
    for name in ("Order by order", "The RNN at work", "Take it apart", "Two models", "Runs"):
        chosen = page.get_by_role("tab", name=name)
        chosen.focus()
        page.keyboard.press("Enter")
        page.wait_for_function(
            "name => document.querySelector('[role=tab][aria-selected=true]').innerText.startsWith(name)", arg=name
        )
        nameless = re.findall(
            r"- (?:slider|spinbutton|textbox|combobox|listbox|button|iframe)(?! \").*",
            page.locator("body").aria_snapshot(),
        )
        assert nameless == []
        assert page.locator("img:not([alt]), .plot:not([aria-label])").count() == 0
    page.get_by_role("tab", name="Order by order").focus()
    page.keyboard.press("Enter")
    page.locator("#order input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    says(page, "#order-words", "Cut after order 9")
    assert page.said == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_a_phone(visit, theme):
    page = visit(width=390, color_scheme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for plot in ("#order-bars .plot", "#order-distance .plot"):
        inside, whole = page.eval_on_selector(plot, "one => [one.clientWidth, one.scrollWidth]")
        assert inside >= 290 and whole <= inside
    for name in ("Order", "Layer", "Head"):
        assert page.get_by_label(name, exact=False).count() > 0
    colour = page.evaluate("getComputedStyle(document.querySelector('#order-bars .role-axis-label text')).fill")
    assert colour == {"light": "rgb(84, 93, 104)", "dark": "rgb(167, 176, 188)"}[theme]


@pytest.mark.parametrize("busy", [False, True])
def test_ctrl_c_ends_the_command(browser, tmp_path, busy):
    folder = save_tiny(tmp_path / "model")
    command = [sys.executable, "-m", "softmax_rnn", "explore", str(folder), "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        if busy:
            page.wait_for_selector("#order-bars svg")
            tab(page, "Two models")
            slide(page, "new-tokens", 128)
            page.get_by_role("button", name="Continue").click()
            says(page, "#first-model", "2 tokens")
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=10)[1]
        page.close()
    finally:
        process.kill()
    assert process.returncode == 0
    assert said == ""


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/gradio_api/queue/join", HANDSHAKE),
        ("/gradio_api/queue/join", HANDSHAKE | {"Origin": "http://evil.example"}),
        ("/", {"Host": "evil.example"}),
        ("/gradio_api/queue/data?session_hash=a", {"Origin": "http://evil.example"}),
        ("/gradio_api/file=/etc/passwd", {}),
    ],
)
def test_who_is_refused(running, path, headers):
    asked = http.client.HTTPConnection(urlsplit(running.address).netloc)
    asked.request("GET", path, headers=headers)
    assert asked.getresponse().status == 403
    asked.close()
