"""An HTML page as its elements and texts."""

from html.parser import HTMLParser

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

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
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
            values[attribute] for tag, values in self.tags if attribute in values and tag in (tags or (tag,))
        ]

    @property
    def text(self) -> str:
        """All texts but those of scripts and styles."""
        return " ".join(" ".join(text for tag, text in self.texts if tag not in ("script", "style")).split())
