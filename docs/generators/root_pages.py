"""Pages at the root of the repository, where GitHub and package indexes expect them."""

import os
import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent.parent

PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "config/README.md": "howto/workflow.md",
}
"""Files of the repository, and the pages of the site that they are."""

_INSTEAD = {
    **PAGES,
    "docs/tutorial.ipynb": "notebook.md",
}  # the notebook is shown as a page

_LINK = re.compile(
    r"(?P<text>!?\[[^]]*\])\((?!\w+:|#|/)(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
)


def page(source: str) -> str:
    """A file of the repository as a page, with its links put right."""
    return relinked((ROOT / source).read_text(encoding="utf-8"), source, PAGES[source])


def relinked(text: str, source: str, place: str) -> str:
    """Rewrite the links of a file at `source` in the repository for its page at `place` on the site.

    Links to files that are not on the site become text. Broken links are kept, so that the strict build
    reports them.
    """

    def link(found: re.Match[str]) -> str:
        target = os.path.normpath(PurePosixPath(source).parent / found["target"])
        on_site = _INSTEAD.get(target)
        if on_site is None and target.startswith("docs/"):
            on_site = target.removeprefix("docs/")
        if on_site is not None:
            there = os.path.relpath(on_site, PurePosixPath(place).parent)
            return f"{found['text']}({there}{found['anchor'] or ''})"
        return found["text"][1:-1] if (ROOT / target).exists() else found[0]

    return _LINK.sub(link, text)
