"""Pages in a real browser: drawn, quiet, without a network, usable, and deaf to hostile names."""

import time

import pytest

from report.pages import HARMLESS, HOSTILE, every_block
from softmax_rnn.report.tables import table_csv

TABLE = next(table for table in every_block(HARMLESS).tables() if table.id == "cells")


def until(page, expression):
    """Ask again and again from here: polling inside the page would need eval, which its policy forbids."""
    deadline = time.monotonic() + 30
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        time.sleep(0.05)


def column(page, index):
    return page.eval_on_selector_all(
        "#cells tbody tr:not([hidden])", f"rows => rows.map(row => row.cells[{index}].textContent)"
    )


def head(page, index):
    return page.locator("#cells thead th").nth(index)


def background(page):
    return page.evaluate("getComputedStyle(document.documentElement).backgroundColor")


def label_colour(page):
    return page.evaluate("getComputedStyle(document.querySelector('#chart-0 .role-axis-label text')).fill")


@pytest.mark.parametrize("name", ["harmless", "hostile"])
@pytest.mark.parametrize("width", [1280, 360])
def test_a_page_is_drawn_in_silence_without_a_network(visit, name, width):
    opened = visit(name, width)
    opened.page.wait_for_timeout(300)
    assert opened.said == []
    assert [url for url in opened.asked if not url.startswith("file://")] == []
    assert len(opened.asked) == 1
    marks = opened.page.eval_on_selector_all(
        ".plot", "plots => plots.map(p => p.querySelectorAll('svg .mark-symbol path, svg .mark-rect path').length)"
    )
    assert len(marks) == 4
    assert min(marks) >= len(HARMLESS)


@pytest.mark.parametrize("name", ["harmless", "hostile"])
@pytest.mark.parametrize("width", [360, 800])
def test_a_narrow_page_does_not_scroll_sideways(visit, name, width):
    page = visit(name, width).page
    page.eval_on_selector_all("details", "all => all.forEach(one => (one.open = true))")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_hostile_names_are_shown_and_do_nothing(visit):
    opened = visit("hostile")
    page = opened.page
    page.eval_on_selector_all("details", "all => all.forEach(one => (one.open = true))")
    for plot in page.locator(".plot svg").all():
        plot.hover()
    for button in page.locator("th button").all()[:5]:
        button.click()
    assert page.evaluate("window.__pwned") is None
    assert page.title() == " ".join(HOSTILE)
    assert sorted(column(page, 0)) == sorted(HOSTILE)
    legend = page.locator("#chart-0 .role-legend-label text").all_text_contents()
    assert [text.replace("…", "") in name for text, name in zip(legend, HOSTILE, strict=True)] == [True] * len(HOSTILE)
    assert opened.said == []


def test_a_tooltip_shows_names_as_text(visit):
    opened = visit("hostile")
    page = opened.page
    page.locator("#chart-0 svg").hover(position={"x": 300, "y": 100})
    page.wait_for_selector("#vg-tooltip-element.visible")
    keys = page.locator("#vg-tooltip-element td.key").all_text_contents()
    values = page.locator("#vg-tooltip-element td:not(.key)").all_text_contents()
    assert keys[0] == HOSTILE[0]
    assert values[0] in HOSTILE
    assert page.locator("#vg-tooltip-element script, #vg-tooltip-element img").count() == 0


def test_a_script_that_is_not_the_pages_own_does_not_run(visit):
    opened = visit()
    opened.page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.__pwned = 1";
            document.body.append(script);
        }"""
    )
    assert opened.page.evaluate("window.__pwned") is None
    assert any("Content Security Policy" in text for text in opened.said)


def test_columns_sort_as_numbers_up_down_and_back(visit):
    page = visit().page
    before = column(page, 2)
    states = []
    for _ in range(3):
        head(page, 2).locator("button").click()
        states.append((head(page, 2).get_attribute("aria-sort"), column(page, 2)))
    # The cells are "−i ± 0.5": as text −10 would stand beside −1.
    assert states == [("ascending", before[::-1]), ("descending", before), ("none", before)]


def test_sorting_another_column_forgets_the_first(visit):
    page = visit().page
    head(page, 2).locator("button").click()
    head(page, 0).locator("button").click()
    assert [head(page, i).get_attribute("aria-sort") for i in (0, 2)] == ["ascending", "none"]
    assert column(page, 0) == HARMLESS


def test_headers_sort_from_the_keyboard(visit):
    page = visit().page
    head(page, 2).locator("button").focus()
    page.keyboard.press("Enter")
    assert head(page, 2).get_attribute("aria-sort") == "ascending"


def test_rows_are_filtered_by_text_and_by_choice(visit):
    page = visit().page
    count = page.locator("#cells .count")
    page.fill("#cells input", "NAME 3")
    assert column(page, 0) == ["name 3"]
    assert count.text_content() == f"1 of {len(HARMLESS)} rows"
    page.fill("#cells input", "")
    page.select_option("#cells select", label=HARMLESS[1])
    assert column(page, 0) == HARMLESS[1::2]
    page.fill("#cells input", "name 5")
    assert column(page, 0) == ["name 5"]
    page.select_option("#cells select", label="all")
    page.fill("#cells input", "")
    assert count.text_content() == f"{len(HARMLESS)} rows"


@pytest.mark.parametrize(("name", "names"), [("harmless", HARMLESS), ("hostile", HOSTILE)])
def test_the_downloaded_table_is_the_written_one(visit, name, names):
    page = visit(name).page
    with page.expect_download() as download:
        page.click("#cells [data-action=csv]")
    table = next(table for table in every_block(names).tables() if table.id == "cells")
    assert download.value.suggested_filename == "cells.csv"
    assert download.value.path().read_text(encoding="utf-8") == table_csv(table)


def test_the_download_has_the_rows_that_are_shown(visit):
    page = visit().page
    page.fill("#cells input", "name 3")
    with page.expect_download() as download:
        page.click("#cells [data-action=csv]")
    lines = download.value.path().read_text(encoding="utf-8").splitlines()
    assert lines == [table_csv(TABLE).splitlines()[i] for i in (0, 4)]


def test_the_theme_follows_the_system_then_the_reader(visit):
    light, dark = visit(color_scheme="light").page, visit(color_scheme="dark").page
    assert background(light) == "rgb(255, 255, 255)"
    assert background(dark) == "rgb(20, 23, 27)"
    assert label_colour(light) != label_colour(dark)
    chosen = dark.locator("[data-action=theme]")
    assert chosen.text_content() == "Light theme"
    chosen.click()
    assert (background(dark), label_colour(dark)) == (background(light), label_colour(light))
    dark.reload()
    assert background(dark) == background(light)


def test_paper_is_light(visit):
    page = visit(color_scheme="dark").page
    page.emulate_media(media="print", color_scheme="dark")
    assert background(page) == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert page.locator("#chart-0 svg").is_visible()


def lines_of(page, opacity):
    return page.locator(f"#chart-0 .mark-line path[opacity='{opacity}']").count()


def test_a_click_on_the_legend_singles_a_line_out(visit):
    page = visit().page
    labels = page.locator("#chart-0 .role-legend-label text")
    labels.nth(2).click()
    until(page, "document.querySelectorAll(\"#chart-0 .mark-line path[opacity='0.1']\").length > 0")
    assert lines_of(page, 0.1) == len(HARMLESS) - 1
    labels.nth(4).click()
    page.wait_for_timeout(200)
    assert lines_of(page, 0.1) == len(HARMLESS) - 2


def test_the_wheel_zooms_with_ctrl_and_scrolls_without(visit):
    page = visit().page
    page.locator("#chart-0").scroll_into_view_if_needed()
    page.locator("#chart-0 svg").hover(position={"x": 400, "y": 150})
    paths = "[...document.querySelectorAll('#chart-0 .mark-line path')].map(p => p.getAttribute('d')).join()"
    before, scrolled = page.evaluate(paths), page.evaluate("scrollY")
    page.mouse.wheel(0, -200)
    page.wait_for_timeout(300)
    assert page.evaluate(paths) == before
    assert page.evaluate("scrollY") < scrolled
    page.locator("#chart-0 svg").hover(position={"x": 400, "y": 150})
    scrolled = page.evaluate("scrollY")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.wait_for_timeout(300)
    page.keyboard.up("Control")
    assert page.evaluate(paths) != before
    assert page.evaluate("scrollY") == scrolled


def test_a_chart_is_saved_with_colours_of_its_own(visit):
    page = visit().page
    with page.expect_download() as download:
        page.click("#chart-1 [data-action=svg]")
    svg = download.value.path().read_text(encoding="utf-8")
    assert download.value.suggested_filename == "chart-1.svg"
    assert svg.startswith("<svg")
    assert "var(" not in svg
    assert "#0072b2" in svg.lower()


def test_commands_are_copied(visit):
    page = visit(permissions=["clipboard-read", "clipboard-write"]).page
    page.click("[data-action=copy]")
    until(page, "document.querySelector('[data-action=copy]').textContent === 'Copied'")
    assert page.evaluate("navigator.clipboard.readText()") == " ".join(HARMLESS)


def test_panels_stand_side_by_side_where_there_is_room(visit):
    def first_two(page):
        panels = page.locator("#chart-1 .role-scope.cell > g > path.background")
        return panels.nth(0).bounding_box(), panels.nth(1).bounding_box()

    wide, narrow = visit(width=1280).page, visit(width=360).page
    (a, b), (c, d) = first_two(wide), first_two(narrow)
    assert b["x"] > a["x"] + 100
    assert d["y"] > c["y"] + 100


def test_charts_fit_again_when_the_window_changes(visit):
    page = visit(width=1280).page
    wide = page.locator("#chart-0 svg").bounding_box()["width"]
    page.set_viewport_size({"width": 500, "height": 900})
    until(page, f"document.querySelector('#chart-0 svg').getBoundingClientRect().width < {wide - 200}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 500


def test_everything_that_acts_can_be_reached_and_has_a_name(visit):
    page = visit().page
    nameless = page.eval_on_selector_all(
        "button, select, input, summary, [tabindex]",
        "all => all.filter(e => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).length",
    )
    assert nameless == 0
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
