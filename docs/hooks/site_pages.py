"""What the site adds to the pages in docs/ when MkDocs builds it. Nothing of this is written to the repository.

pages of the root    README, CONTRIBUTING and CHANGELOG become pages
benchmarks/          figures and numbers are copied beside the pages that show them
<!-- here: name -->  is replaced by what the package says about itself: its variants, its commands, what was measured
```math              becomes MathML
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from command_page import commands_text
from equations import with_mathml
from field_page import field_text
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from plan_table import plans_text
from repository_links import ROOT, ROOT_PAGES, with_site_links
from sliders import LIBRARY, exp_figure, head_figure
from study_results import results_text
from variant_page import variants_text

from softmax_rnn.report.page import chart_library

GENERATED = {
    "variants": variants_text,
    "field": field_text,
    "plans": plans_text,
    "commands": commands_text,
    "results": results_text,
    "exp_figure": exp_figure,
    "head_figure": head_figure,
}
PLACE = re.compile(r"^<!-- here: (\w+) -->$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root and what was measured."""
    for source, name in ROOT_PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    for measured in sorted((ROOT / "benchmarks").iterdir()):
        files.append(File.generated(config, f"benchmarks/{measured.name}", abs_src_path=str(measured)))
    files.append(File.generated(config, LIBRARY, content=chart_library()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn a page of the repository into one of the site."""
    sources = {name: source for source, name in ROOT_PAGES.items()}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    text = with_site_links(markdown, PurePosixPath(source))
    text = PLACE.sub(lambda place: GENERATED[place[1]](), text)
    return with_mathml(text)
