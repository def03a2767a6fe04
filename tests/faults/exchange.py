"""A request to the faulty server, and what an honest answer to it is."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

PAUSE = 0.02  # seconds between the drips of a slow answer


@dataclass
class Site:
    """A file at several addresses, and what each answers to one request after the other."""

    content: bytes
    seed: int = 0
    tag: bytes | None = b'"v1"'
    scripts: list[list[str]] = field(default_factory=lambda: [[]])  # of each address: faults, then honest
    always: list[str | None] = field(default_factory=lambda: [None])  # of each address: after its script
    later: bytes = b""  # the content from the fault "changed" on
    asked: list[dict[str, str]] = field(default_factory=list)  # the headers of each request

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)

    def next_fault(self, address: int) -> str | None:
        script = self.scripts[address]
        return script.pop(0) if script else self.always[address]


@dataclass
class Exchange:
    """A request, and the connection that the answer goes to."""

    connection: socket.socket
    site: Site
    headers: dict[str, str]
    here: str  # this address
    over: threading.Event  # the server ends

    @property
    def rng(self) -> Random:
        return self.site.rng

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def head(self, status: int, *headers: bytes) -> None:
        lines = (b"HTTP/1.1 %d Some Words" % status, *headers, b"Connection: close", b"", b"")
        self.send(b"\r\n".join(lines))

    def answer(self) -> tuple[int, list[bytes], bytes]:
        """Status, headers without a length, and body, as an honest server has them."""
        content, tag = self.site.content, self.site.tag
        headers = [b"ETag: " + tag] if tag else []
        same = self.headers.get("if-range", "") in ("", (tag or b"none").decode())
        start = int(self.headers.get("range", "bytes=0-")[len("bytes=") : -1])
        if not start or not same:
            return 200, headers, content
        if start >= len(content):
            return 416, [*headers, b"Content-Range: bytes */%d" % len(content)], b""
        place = b"Content-Range: bytes %d-%d/%d" % (start, len(content) - 1, len(content))
        return 206, [*headers, place], content[start:]

    def respond(self, *more: bytes, length: bytes | None = None, cut: int | None = None) -> None:
        """Answer honestly but for these headers, this length, or a body that is cut."""
        status, headers, body = self.answer()
        length = b"%d" % len(body) if length is None else length
        self.head(status, *headers, *more, b"Content-Length: " + length)
        self.send(body[:cut])

    def part(self, body: bytes) -> bytes:
        """A random part of a body, from its start."""
        return body[: self.rng.randrange(len(body) + 1)]

    def slowly(self, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            if self.over.wait(PAUSE):
                return
            self.send(piece)
