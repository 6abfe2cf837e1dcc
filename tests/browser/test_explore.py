"""The live page in a real browser: each tab used as a person would, without a network, closed without a trace."""

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
import uvicorn

from explore.models import save_tiny, tiny_source
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.experiment.config import resolve
from softmax_rnn.experiment.training import run_training

# Gradio and what it stands on warn of their own future.
pytestmark = pytest.mark.filterwarnings("ignore")
PATIENCE = 60_000


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
def running(runs):
    from softmax_rnn.explore import app, server

    made = []
    texts = app.Texts

    def kept(source):
        made.append(texts(source))
        return made[-1]

    app.Texts = kept
    try:
        page = server.application(tiny_source(), runs)
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
    page.get_by_label("Text, up to").first.fill("<img src=x onerror=alert(1)> and more")
    page.get_by_role("button", name="Read").click()
    says(page, "#order-words", "Query 37")
    assert page.locator("#order-words p img").count() == 0
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
    options = page.locator("#options-output_gate input")
    page.wait_for_function("document.querySelector('#options-output_gate input')?.value == 'after_norm=false'")
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
    page.get_by_role("button", name="Stop").first.click()
    page.wait_for_timeout(600)
    before = page.locator("#rnn-frame").inner_text()
    page.wait_for_timeout(600)
    assert page.locator("#rnn-frame").inner_text() == before
    slide(page, "rnn-token", 12)
    says(page, "#rnn-frame", "Token 12 of")
    assert page.locator("#rnn-frame img").count() == 1
    choose(page, "rnn-variant", "softmax")
    slide(page, "rnn-token", 13)
    says(page, "#rnn-frame", "13 of 13 keys are held exactly")
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


def test_closing_the_page_ends_what_it_asked_for(visit, running):
    page = visit()
    tab(page, "Two models")
    slide(page, "new-tokens", 128)
    page.get_by_role("button", name="Continue").click()
    says(page, "#first-model", "2 tokens")
    page.context.close()
    deadline = time.monotonic() + 30
    while running.texts.kept and time.monotonic() < deadline:
        time.sleep(0.2)
    assert running.texts.kept == 0


def test_runs_are_compared_in_a_page_of_their_own(visit):
    page = visit()
    tab(page, "Runs")
    page.get_by_role("button", name="Compare").click()
    frame = page.frame_locator("#runs-report iframe")
    frame.locator("html.drawn").wait_for()
    assert frame.locator("h1").count() == 1
    assert page.locator("#runs-report iframe").get_attribute("sandbox") == "allow-scripts"


def test_eight_pages_and_two_hundred_moves(visit, running):
    pages = [visit(width=700) for _ in range(8)]
    for n, page in enumerate(pages):
        page.get_by_label("Text, up to").first.fill(f"text number {n}")
        page.get_by_role("button", name="Read").click()
    for page in pages:
        says(page, "#order-words", "Query 13")
    for order in range(25):
        for n, page in enumerate(pages):
            slide(page, "order", (order * 7 + n) % 41)
    for n, page in enumerate(pages):
        says(page, "#order-words", f"Cut after order {(24 * 7 + n) % 41},")
        assert f"number {n}".replace(" ", "") in "".join(page.locator(".words").first.inner_text().split())
        assert page.said == []
        page.context.close()
    deadline = time.monotonic() + 30
    while running.texts.kept and time.monotonic() < deadline:
        time.sleep(0.2)
    assert running.texts.kept == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_a_phone(visit, theme):
    page = visit(width=390, color_scheme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for name in ("Order", "Layer", "Head"):
        assert page.get_by_label(name, exact=False).count() > 0
    colour = page.evaluate("getComputedStyle(document.querySelector('#order-bars .role-axis-label text')).fill")
    assert colour == {"light": "rgb(84, 93, 104)", "dark": "rgb(167, 176, 188)"}[theme]


@pytest.mark.parametrize(
    ("path", "headers", "said"),
    [
        ("", {"Host": "evil.example"}, "only for this machine"),
        ("config", {"Origin": "http://evil.example"}, "only for pages of this server"),
        ("gradio_api/file=/etc/passwd", {}, "this page has no files"),
        ("gradio_api/upload", {}, "this page has no files"),
    ],
)
def test_who_is_refused(running, path, headers, said):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(running.address + path, headers=headers))
    assert refused.value.code == 403
    assert said in refused.value.read().decode()


def test_ctrl_c_ends_the_command(tmp_path):
    folder = save_tiny(tmp_path / "model")
    command = [sys.executable, "-m", "softmax_rnn", "explore", str(folder), "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    line = process.stdout.readline()
    assert "http://127.0.0.1:" in line
    address = line.split(": ", 1)[1].split(" ")[0]
    assert b"Softmax attention" in urllib.request.urlopen(address).read()
    os.kill(process.pid, signal.SIGINT)
    said = process.communicate(timeout=30)[1]
    assert process.returncode in (0, 130)
    assert "Traceback" not in said
