"""An HTML page as its elements and texts, and as a browser shows it."""

import json
import shutil
import subprocess
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no chromium on PATH (Debian: apt install chromium)"
)

VOID = ("meta", "img", "wbr", "link", "input", "br", "hr")


class HtmlPage(HTMLParser):
    """Elements with their attributes, and texts with the element that they are in."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.closed_in_order = True
        self.feed(text)

    def handle_starttag(
        self, tag: str, attributes: list[tuple[str, str | None]]
    ) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attributes}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.closed_in_order &= bool(self.open) and self.open[-1] == tag
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def values(self, attribute: str, *tags: str) -> list[str]:
        """An attribute of all elements, or of those of some `tags`, that have it."""
        return [
            values[attribute]
            for tag, values in self.tags
            if attribute in values and tag in (tags or (tag,))
        ]

    @property
    def text(self) -> str:
        """All texts but those of scripts and styles."""
        return " ".join(
            " ".join(
                text for tag, text in self.texts if tag not in ("script", "style")
            ).split()
        )


# What frames show; collapsed parts are opened, which makes a page widest.
FRAMES = """
const frames = Array.from(document.querySelectorAll("iframe"));
const found = frames.map(({ contentDocument: page, contentWindow: view }) => {
  for (const part of page.querySelectorAll("details")) part.open = true;
  const loaded = view.performance.getEntriesByType("resource").map(({ name }) => name);
  return {
    width: view.innerWidth,
    dark: view.matchMedia("(prefers-color-scheme: dark)").matches,
    widest: page.documentElement.scrollWidth,
    background: view.getComputedStyle(page.body).backgroundColor,
    requests: loaded.filter((name) => !name.startsWith("data:")),
    empty: Array.from(page.images).filter((image) => !image.naturalWidth).length,
  };
});
"""


def found_in_browser(text: str, script: str, directory: Path) -> Any:
    """What `script` puts into `found` at the end of a page, two seconds after everything is loaded."""
    path = directory / "page.html"
    end = "document.body.textContent = `FOUND${JSON.stringify(found)}END`;"
    run = (
        "<script>addEventListener('load', () => setTimeout(() => {"
        f" {script} {end} }}, 2000))</script></body>"
    )
    path.write_text(text.replace("</body>", run))
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--dump-dom",
        "--virtual-time-budget=9000",
    ]
    command += [f"--user-data-dir={directory / 'browser'}", path.as_uri()]
    dom = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=120
    ).stdout
    return json.loads(unescape(dom.partition("FOUND")[2].partition("END")[0]))


def check_layout(text: str, directory: Path) -> None:
    """Nothing overflows on a phone and a wide screen, in light and dark mode, and nothing is requested."""
    layouts = [(width, scheme) for width in (400, 1600) for scheme in ("light", "dark")]
    frames = "".join(
        f'<iframe style="width: {width}px; height: 900px; border: 0; color-scheme: {scheme}"'
        f' srcdoc="{escape(text)}"></iframe>'
        for width, scheme in layouts
    )
    found = found_in_browser(f"<!doctype html><body>{frames}</body>", FRAMES, directory)
    assert [(one["width"], one["dark"]) for one in found] == [
        (w, s == "dark") for w, s in layouts
    ]
    assert [one["widest"] for one in found] == [width for width, _ in layouts]
    assert all(one["requests"] == [] and one["empty"] == 0 for one in found)
    assert found[0]["background"] == found[2]["background"] != found[1]["background"]
