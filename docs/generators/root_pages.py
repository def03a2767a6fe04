"""Pages that stand at the root of the repository, where GitHub and package indices look for them."""

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

_LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)#\s]+)(#[^)\s]*)?(?=\))")


def page(source: str) -> str:
    """A file of the repository as a page, with its links put right."""
    return relinked((ROOT / source).read_text(encoding="utf-8"), source, PAGES[source])


def relinked(text: str, source: str, place: str) -> str:
    """Links of a file at `source` in the repository as links of the page at `place` on the site.

    A link to a file that isn't part of the site stays a text.
    """

    def link(found: re.Match[str]) -> str:
        target = os.path.normpath(PurePosixPath(source).parent / found[1])
        on_site = PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if on_site is None:
            return found[0]
        return os.path.relpath(on_site, PurePosixPath(place).parent) + (found[2] or "")

    return _LINK.sub(link, text)
