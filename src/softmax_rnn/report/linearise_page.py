"""The page of a conversion: from the record that ``softmax-rnn linearise`` writes to a `Page`."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE

from softmax_rnn.report.cells import Column
from softmax_rnn.report.chart_data import Axis
from softmax_rnn.report.data_blocks import data_chart, rows_table
from softmax_rnn.report.elements import Block, CommandBlock, Formula, Note, Page, Prose, Section
from softmax_rnn.report.terminal import print_table

Record = dict[str, Any]
ORIGINAL = "original"


def linearise_page(value: Record) -> Page:
    """The whole page; parts that were not measured are left out."""
    sections = [_losses(value), _positions(value), _errors(value)]
    if value["halves"]:
        sections.append(_halves(value))
    if value["layers"]:
        sections.append(_layers(value["layers"]))
    sections += [_memory(value), _cost(value)]
    facts = {"model": str(value["model"]), "to": str(value["to"]), "parameters": f"{value['parameters']:,}"}
    return Page(f"{value['model']} to {value['to']}", "A trained model with another attention", sections, facts)


def loss_rows(value: Record) -> list[Record]:
    """A row per stage and text: the loss, and its distance to the original's.

    >>> losses = [{"stage": s, "text": "a", "loss": x} for s, x in (("original", 2.0), ("before", 3.0))]
    >>> loss_rows({"losses": losses})[1]["above"]
    0.5
    """
    base = {row["text"]: row["loss"] for row in value["losses"] if row["stage"] == ORIGINAL}
    rows = []
    for row in value["losses"]:
        known = base.get(row["text"]) and row["loss"] is not None
        above = row["loss"] / base[row["text"]] - 1 if known else None
        rows.append({"stage": row["stage"], "text": row["text"], "loss": row["loss"], "above": above})
    return rows


def print_linearised(value: Record) -> None:
    """The losses in the terminal: a line per stage, two columns per text."""
    rows = loss_rows(value)
    texts = list(dict.fromkeys(row["text"] for row in rows))
    headings = ["after", *(f">{heading}" for text in texts for heading in (text, "above"))]
    lines = []
    for stage in dict.fromkeys(row["stage"] for row in rows):
        cells = [stage]
        for row in (row for row in rows if row["stage"] == stage):
            cells.append("not finite" if row["loss"] is None else f"{row['loss']:.4f}")
            cells.append("–" if row["above"] is None or stage == ORIGINAL else f"{100 * row['above']:+.1f} %")
        lines.append(cells)
    title = f"{value['model']} to {value['to']}: loss on held-out text"
    print_table(title, headings, lines, title_justify="left", box=SIMPLE)


def _losses(value: Record) -> Section:
    columns = [("after", "stage"), ("text", "text"), (Column("loss, nats", ".4f"), "loss")]
    columns.append((Column("above the original", "+.1%"), "above"))
    caption = "The loss on held-out text: of the original, of the converted model before any stage, after each stage."
    blocks: list[Block] = [Formula(value["formula"]), rows_table("losses", loss_rows(value), columns, caption)]
    bad = sum(row.get("nonpositive_row_sums") or 0 for row in value["losses"])
    if bad:
        blocks.append(Note(f"{bad:,} row sums were not positive: their outputs are not averages.", "warning"))
    tried = value["calibration"].get("tried")
    if tried:
        shown = ", ".join(f"{name} {loss:.4f}" for name, loss in tried.items() if loss is not None)
        words = (
            "What calibration tried in closed form: scales, one per head; matrix, a whole output projection; constant,"
        )
        words += " a value channel that does not change, so that the norm divides by the row sum. KL divergence to the"
        words += f" original on text that was not fitted: {shown}. It kept: {value['calibration']['method']}."
        blocks.append(Prose(words))
    return Section("result", "What each stage gained", blocks)


def _positions(value: Record) -> Section:
    records = [
        {"after": row["stage"], "text": row["text"], "position": place, "loss": loss}
        for row in value["losses"]
        if row["stage"] != "before"
        for place, loss in enumerate(row["by_position"])
        if loss is not None
    ]
    words = "The loss along the row, one line per stage."
    chart = data_chart(
        "positions",
        records,
        value=Axis("loss", "loss, nats"),
        by=Axis("position", "part of the row, from its start"),
        series="after",
        panel="text",
        caption=words,
    )
    return Section("by-position", "By position", [chart])


def _errors(value: Record) -> Section:
    records = [{"after": row["stage"], "layer": row["layer"], "error": row["error"]} for row in value["errors"]]
    words = "The squared error of each layer's attention on the original's input, in units of its squared output."
    chart = data_chart(
        "errors",
        records,
        value=Axis("error", "error of the attention output", log=True),
        by="layer",
        series="after",
        caption=words,
    )
    return Section("by-layer", "By layer", [chart])


def _halves(value: Record) -> Section:
    both = [row | {"part": "both"} for row in value["losses"] if row["stage"] != ORIGINAL]
    rows = sorted([*value["halves"], *both], key=lambda row: (row["text"], row["part"]))
    columns = [("after", "stage"), ("text", "text"), ("part", "part"), (Column("loss, nats", ".4f"), "loss")]
    caption = "Window alone: exp on the last keys and the sinks. State alone: the keys that left the window."
    return Section("halves-section", "Window alone, state alone, both", [rows_table("halves", rows, columns, caption)])


def _layers(layers: Record) -> Section:
    columns = [
        ("layer", "layer"),
        (Column("increase of the loss, only this layer converted", "+.4f"), "increase"),
        ("converted", lambda row: "yes" if row["converted"] else "no"),
        (Column("state, bytes", ","), "bytes"),
        (Column("state converted, bytes", ","), "converted_bytes"),
    ]
    text = f"Predicted loss of the hybrid {layers['predicted']:.4f}, measured {layers['measured']:.4f}, original"
    text += f" {layers['loss']:.4f}, on {layers['tokens']:,} tokens, after calibration. The prediction is the sum of"
    text += " the increases of its layers."
    caption = f"What converting each layer by itself costs, and its state after {layers['context']:,} tokens."
    blocks = [Prose(text), rows_table("layers", layers["rows"], columns, caption)]
    return Section("which-layers", "Which layers", blocks)


def _memory(value: Record) -> Section:
    columns = [("context", "context"), (Column("original, bytes", ","), "original")]
    columns.append((Column("converted, bytes", ","), "converted"))
    caption = "The decoding state of all layers after this many tokens, in float32."
    blocks: list[Block] = [rows_table("memory", value["memory"], columns, caption)]
    if value["decoding"]:
        columns = [("model", "model"), ("context", "context"), (Column("seconds per token", ".4f"), "seconds")]
        columns.append((Column("state, bytes", ","), "bytes"))
        blocks.append(
            rows_table(
                "speed", value["decoding"], columns, "The time of one token after a context; the median of eight."
            )
        )
    return Section("memory-section", "Decoding", blocks)


def _cost(value: Record) -> Section:
    columns = [("stage", "stage"), (Column("tokens", ","), "tokens"), (Column("seconds", ".0f"), "seconds")]
    columns.append((Column("peak memory, bytes", ","), "memory_bytes"))
    caption = "What the stages cost. Seconds of training stages are tokens over the median speed."
    load = "import softmax_rnn.model\nfrom transformers import AutoModelForCausalLM\n\nmodel = AutoModelForCausalLM"
    blocks = [
        rows_table("cost", value["cost"], columns, caption),
        CommandBlock(f'{load}.from_pretrained("this folder")'),
    ]
    return Section("cost-section", "Cost", blocks)
