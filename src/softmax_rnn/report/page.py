"""A page as one HTML file that needs no network: texts, tables, charts and the charts' library inside.

Every text is escaped, in the markup and in the embedded JSON. A content security policy names the page's scripts by
their hash and forbids every other script and every request, whatever a name in the data may say.

>>> from softmax_rnn.report.elements import Page, Prose, Section
>>> html = page_html(Page("Demo", "A page", [Section("first", "First <b>", [Prose("1 < 2")])]))
>>> "<p>1 &lt; 2</p>" in html, "First &lt;b&gt;" in html
(True, True)
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from softmax_rnn.files import cache_folder, finite, write_text
from softmax_rnn.report import cells, elements, tables, theme
from softmax_rnn.report.elements import Page
from softmax_rnn.report.theme import schema_version

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES: dict[type, str] = {
    elements.Prose: "blocks/prose.html",
    elements.Subheading: "blocks/subheading.html",
    elements.Note: "blocks/note.html",
    elements.Formula: "blocks/formula.html",
    elements.CommandBlock: "blocks/command.html",
    elements.Verdicts: "blocks/verdicts.html",
    elements.TableBlock: "blocks/table.html",
    elements.ChartBlock: "blocks/chart.html",
}


def write_page(page: Page, path: Path) -> Path:
    """Write the page; the file is whole or absent."""
    return write_text(path, page_html(page), "replace")


def page_html(page: Page) -> str:
    """The page's HTML."""
    environment = _environment()
    charts = list(page.charts())
    script = _source(environment, "script.js")
    library = chart_library() if charts else ""
    return environment.get_template("page.html").render(
        page=page,
        light=theme.LIGHT,
        dark=theme.DARK,
        style=_source(environment, "style.css"),
        script=script,
        library=library,
        policy=_policy([script, library] if charts else [script]),
        config=theme.vega_config(theme.on_page),
        specs={block.id: finite(block.chart.to_dict(validate=False)) for block in charts},
    )


def save_figures(page: Page, folder: Path, formats: Sequence[str] = ("svg", "png", "pdf")) -> list[Path]:
    """Every chart of the page as files for a paper, named by its id, with its caption, in the light colours."""
    from softmax_rnn.report.figures import save_chart

    made = []
    for block in page.charts():
        made += save_chart(block.chart, folder, block.id, tuple(formats), title=block.caption)
    return made


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("softmax_rnn.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"paragraphs": _paragraphs, "shown": cells.shown, "sort_key": cells.sort_key}
    environment.filters |= {"csv_lines": tables.csv_lines, "choices": _choices, "right_columns": tables.right_columns}
    environment.filters["breakable"] = _breakable
    environment.globals["template_of"] = lambda block: TEMPLATES[type(block)]
    return environment


def _source(environment: Environment, name: str) -> str:
    """A script or style sheet of the package as it is."""
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


@cache
def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, in the version of Altair's charts.

    Putting it together takes seconds, so it is kept on disk under the hash of its content, which is checked.
    """
    import altair as alt
    import vl_convert

    known = f"charts-{alt.SCHEMA_VERSION}-{version('vl-convert-python')}"
    for path in cache_folder().glob(f"{known}-*.js"):
        script = path.read_bytes()
        if path.stem == f"{known}-{hashlib.sha256(script).hexdigest()}":
            return script.decode()
    made = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", schema_version())
    name = f"{known}-{hashlib.sha256(made.encode()).hexdigest()}.js"
    with contextlib.suppress(OSError):  # a page needs no cache
        write_text(cache_folder() / name, made)
    return made


def _policy(scripts: Sequence[str]) -> str:
    """What the browser may do for this page: run these scripts, style it, and nothing over a network."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def _paragraphs(text: str | Markup) -> Markup:
    """Plain text as paragraphs, one for each piece between empty lines; markup as it is."""
    from markupsafe import Markup

    if isinstance(text, Markup):
        return text
    parts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    return Markup("\n").join(Markup("<p>{}</p>").format(part) for part in parts)


def _breakable(text: str) -> Markup:
    """A long name may be broken after an underscore."""
    from markupsafe import Markup, escape

    return escape(text).replace("_", Markup("_<wbr>"))


def _choices(table: elements.TableBlock, index: int) -> list[str]:
    """The different texts of a column, in the order in which they come."""
    return list(dict.fromkeys(cells.shown(row[index], table.heads[index]) for row in table.rows))
