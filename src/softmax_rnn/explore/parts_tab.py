"""The tab "Take it apart"."""

from __future__ import annotations

from typing import Any

import gradio as gr

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError
from softmax_rnn.explore import parts_view
from softmax_rnn.explore.tabs import LIVE, NARROWEST, in_one_line, whole
from softmax_rnn.explore.views import problem_html

FIRST = "softmax"
DIMENSIONS = (16, 32, 64, 128)
ABREAST = 5
"""Menus in a row."""
CONTEXTS = (128, 1024, 4096, 16384, 65536)


def parts_tab(page: gr.Blocks) -> None:
    """A starting point, a menu per part, then the formula, what it means and what to copy."""
    names = [(f"{VARIANTS.short(name)}  ({VARIANTS.row(name).group})", name) for name in VARIANTS]
    with gr.Row():
        start = gr.Dropdown(names, value=FIRST, label="Start from a row of the table", elem_id="start", scale=2)
        dimension = gr.Dropdown(list(DIMENSIONS), value=64, label="Head dimension", elem_id="dimension")
        context = gr.Dropdown(list(CONTEXTS), value=1024, label="Sequence length", elem_id="context")
    menus, options = _menus()
    said = gr.HTML(elem_id="apart-said")
    copied: dict[str, Any] = {"interactive": False, "wrap_lines": True, "buttons": ["copy"]}
    with gr.Row():
        with gr.Column(min_width=NARROWEST):
            curves = gr.HTML(elem_id="apart-curves")
        with gr.Column(min_width=NARROWEST):
            python = gr.Code(language="python", label="Python", elem_id="apart-python", **copied)
            as_json = gr.Code(language="json", label="JSON", elem_id="apart-json", **copied)
    shown, controls = [said, curves, python, as_json], [dimension, context, *menus, *options]
    count = len(parts_view.SLOTS)

    def view(dimension: Any, context: Any, *chosen: Any) -> tuple[str, str, str, str]:
        pairs = zip(map(str, chosen[:count]), map(str, chosen[count:]), strict=True)
        choices = dict(zip(parts_view.SLOTS, pairs, strict=True))
        dimension, context = whole(dimension, "head dimension"), whole(context, "sequence length")
        if not (1 <= dimension <= 1024 and 1 <= context <= 10**7):
            raise InputError(
                f"head dimension and sequence length: expected 1 to 1024 and 1 to 10⁷, got {dimension}, {context}"
            )
        return parts_view.apart_view(parts_view.spec_of_choices(choices), dimension, context)

    show = in_one_line(4)(view)

    @in_one_line(4 + 2 * count)
    def begin(name: str, dimension: Any, context: Any) -> Any:
        spec = VARIANTS[str(name)]
        chosen = [parts_view.part_choice(getattr(spec, slot)) for slot in parts_view.SLOTS]
        kinds, texts = [kind for kind, _ in chosen], [text for _, text in chosen]
        boxes = [gr.Textbox(value=text, visible=bool(text)) for text in texts]
        return (*view(dimension, context, *kinds, *texts), *kinds, *boxes)

    def changed(place: int) -> Any:
        slot = parts_view.SLOTS[place]

        @in_one_line(5)
        def change(dimension: Any, context: Any, *chosen: Any) -> Any:
            kind = str(chosen[place])
            if kind not in parts_view.kinds(slot):
                raise InputError(f"{slot}: expected one of {', '.join(parts_view.kinds(slot))}, got {kind[:40]!r}")
            text = parts_view.default_options(slot, kind)
            box = gr.Textbox(value=text, visible=bool(text))
            now = [*chosen]
            now[count + place] = text
            try:
                return (*view(dimension, context, *now), box)
            except InputError as error:
                # The options are those of the new kind, even where the parts cannot be combined.
                return (problem_html(str(error)), gr.skip(), gr.skip(), gr.skip(), box)

        return change

    page.load(show, controls, shown, **LIVE)
    start.input(begin, [start, dimension, context], [*shown, *menus, *options], **LIVE)
    for control in (dimension, context):
        control.input(show, controls, shown, **LIVE)
    for place, (menu, box) in enumerate(zip(menus, options, strict=True)):
        menu.input(changed(place), controls, [*shown, box], **LIVE)
        box.input(show, controls, shown, **LIVE)


def _menus() -> tuple[list[gr.Dropdown], list[gr.Textbox]]:
    """A menu for each part, and its options as text."""
    menus, options = [], []
    spec = VARIANTS[FIRST]
    for first in range(0, len(parts_view.SLOTS), ABREAST):
        with gr.Row():
            for slot in parts_view.SLOTS[first : first + ABREAST]:
                kind, text = parts_view.part_choice(getattr(spec, slot))
                title = slot.replace("_", " ").capitalize()
                with gr.Column(min_width=170):
                    menus.append(gr.Dropdown(parts_view.kinds(slot), value=kind, label=title, elem_id=f"part-{slot}"))
                    options.append(
                        gr.Textbox(
                            text, label=f"{title}: options", visible=bool(text), max_lines=4, elem_id=f"options-{slot}"
                        )
                    )
    return menus, options
