"""Links that lead somewhere both in the repository and on the site.

In the repository a page links to any file near it. The site has pages and what was measured: links to these are kept,
links to other files (a folder, a source file) become their text.

>>> with_site_links("[terms](docs/terms.md#limits), [cite](CITATION.cff)", PurePosixPath("README.md"))
'[terms](terms.md#limits), cite'
>>> with_site_links("![loss](../benchmarks/2026-11-16-terms.svg)", PurePosixPath("docs/terms.md"))
'![loss](benchmarks/2026-11-16-terms.svg)'
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
ROOT_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files beside docs/ that are pages of the site, and their names there."""
LINK = re.compile(r"(!?)\[([^\]\n]*)\]\(([^()\s#]+)(#[^()\s]*)?\)")


def with_site_links(text: str, source: PurePosixPath) -> str:
    """The text of the file ``source`` with its links as the site has them; what is not a file is left as it is."""

    def replaced(link: re.Match[str]) -> str:
        image, label, target, anchor = link.groups(default="")
        path = posixpath.normpath(str(source.parent / target))
        if ":" in target or not (ROOT / path).exists():
            return link[0]
        found = site_name(path)
        return label if found is None else f"{image}[{label}]({found}{anchor})"

    return LINK.sub(replaced, text)


def site_name(path: str) -> str | None:
    """Where a file of the repository stands on the site; None where it does not.

    >>> site_name("docs/terms.md"), site_name("README.md"), site_name("src")
    ('terms.md', 'index.md', None)
    """
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    folder, name = posixpath.split(path)
    if folder == "docs" and name.endswith(".md"):
        return name
    if folder == "docs/pictures":
        return f"pictures/{name}"
    return path if folder == "benchmarks" else None
