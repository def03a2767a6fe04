"""A web server that does everything wrong that one can, in an order that a seed decides; and its files."""

import gzip
import itertools
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest

from bigbird_dna.errors import BigBirdDnaError, DataError, UsageError
from bigbird_dna.genome.sources.fetching import fetch
from bigbird_dna.genome.sources.http_request import Limits
from bigbird_dna.genome.sources.inputs import Source

PAUSE = 0.02  # seconds between the drips of a slow answer


@dataclass
class Site:
    """A file at several addresses, and what each answers to one request after the other."""

    content: bytes
    seed: int = 0
    tag: bytes | None = b'"v1"'
    scripts: list[list[Any]] = field(
        default_factory=lambda: [[]]
    )  # of each address: faults, then honest
    always: list[Any] = field(
        default_factory=lambda: [None]
    )  # of each address: after its script
    later: bytes = b""  # the content from the fault "changed" on
    asked: list[dict[str, str]] = field(
        default_factory=list
    )  # the headers of each request

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)

    def next_fault(self, address: int) -> Any:
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

    def head(self, status: int, *headers: bytes, body: bytes = b"") -> None:
        lines = (
            b"HTTP/1.1 %d Some Words" % status,
            *headers,
            b"Connection: close",
            b"",
            body,
        )
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
        place = b"Content-Range: bytes %d-%d/%d" % (
            start,
            len(content) - 1,
            len(content),
        )
        return 206, [*headers, place], content[start:]

    def whole(
        self,
        *more: bytes,
        body: Callable[[bytes], bytes] = bytes,
        counted: bool = False,
    ) -> None:
        """Answer honestly but for these headers and what becomes of the body; its length if `counted`."""
        status, headers, content = self.answer()
        content = body(content)
        length = [b"Content-Length: %d" % len(content)] if counted else []
        self.head(status, *headers, *more, *length, body=content)

    def respond(
        self, *more: bytes, length: bytes | None = None, cut: int | None = None
    ) -> None:
        """Answer honestly but for these headers, this length, or a body that is cut."""
        status, headers, body = self.answer()
        length = b"%d" % len(body) if length is None else length
        self.head(
            status, *headers, *more, b"Content-Length: " + length, body=body[:cut]
        )

    def part(self, body: bytes) -> bytes:
        """A random part of a body, from its start."""
        return body[: self.rng.randrange(len(body) + 1)]

    def slowly(self, chunks: Iterator[bytes]) -> None:
        for chunk in chunks:
            if self.over.wait(PAUSE):
                return
            self.send(chunk)


Fault = Callable[[Exchange], object]

CHUNK = 700  # bytes, of chunked answers
LIES = {"length_too_small", "flipped_byte", "lie_of_being_complete"}
"""Faults that nobody can see in a plain file without a checksum."""
CHUNKED = b"Transfer-Encoding: chunked"
PAGES = (b"<!DOCTYPE html>", b"\n <HTML>", b"\xef\xbb\xbf<html>")
STATUSES = (
    *(201, 204, 206, 300, 304, 408, 425, 500, 501, 502, 503, 504, 599, 999),
    *(400, 401, 403, 404, 407, 410, 418, 451, 511),
)
LATER = (
    b"0",
    b"0",
    b"3600",
    b"-1",
    b"soon",
    b"\xe9",
    b"Fri, 31 Dec 9999 23:59:59 GMT",
    b"9" * 400,
)
LENGTHS = (b"abc", b"-5", b"\xb2", b"", b"1e9", b"0x10", b"9" * 5000, b"5, 6")
TARGETS = (
    *(
        b"file:///etc/passwd",
        b"ftp://localhost/x",
        b"data:,x",
        b"http://[",
        b"http://a..b/",
        b"//",
    ),
    *(
        b"\xff \x01",
        b"http://localhost:99999/",
        b"http://localhost:x/",
        b"http://",
        b"gopher://x",
    ),
    b"http://127.0.0.1:9/",
)
NO_HTTP = (
    *(
        b"\x1b[31mred\r\n\r\n",
        b"HTTP/9 x\r\n\r\n",
        b"HTTP/1.1 -1 \xff\r\n\r\n",
        b"\0" * 100,
    ),
    b"220 FTP\r\n",
)


def _chunked(body: bytes) -> bytes:
    chunks = [body[i : i + CHUNK] for i in range(0, len(body), CHUNK)]
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)


def _cut(x: Exchange) -> None:
    x.respond(cut=len(x.part(x.answer()[2])))


def _chunked_badly(x: Exchange) -> None:
    def damaged(body: bytes) -> bytes:
        size = x.rng.choice([b"-5", b"zz", b"f" * 30, b"", b"9" * 70000])
        return _chunked(body[:CHUNK]) + size + b"\r\n" + body[CHUNK:]

    x.whole(CHUNKED, body=damaged)


def _flipped(body: bytes) -> bytes:
    middle = len(body) // 2
    return (
        body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :] if body else b""
    )


def _changed(x: Exchange) -> None:
    if x.site.later:
        x.site.content, x.site.tag = x.site.later, b'"v2"' if x.site.tag else None
    _cut(x)


def _without(header: str) -> Fault:
    def answer(x: Exchange) -> None:
        x.headers.pop(header, None)
        x.respond()

    return answer


def _another_range(x: Exchange) -> None:
    _, headers, _ = x.answer()
    size = len(x.site.content)
    ranges = [b"bytes 7-%d/%d" % (size - 1, size), b"bytes 0-%d/*" % (size - 1)]
    stated = x.rng.choice([*ranges, b"bytes 9-3/2", b"lines 1-2/3", b"\xff"])
    tags = [line for line in headers if line.startswith(b"ETag")]
    length = b"Content-Length: %d" % (size - 7)
    x.head(206, *tags, b"Content-Range: " + stated, length, body=x.site.content[7:])


def _several_ranges(x: Exchange) -> None:
    parts = b"--x\r\nContent-Range: bytes 0-1/9\r\n\r\nab\r\n--x--\r\n"
    x.head(206, b"Content-Type: multipart/byteranges; boundary=x", body=parts)


def _lie_of_being_complete(x: Exchange) -> None:
    start = int(x.headers.get("range", "bytes=0-")[len("bytes=") : -1])
    x.head(416, b"Content-Range: bytes */%d" % start)


def _web_page(x: Exchange) -> None:
    page = x.rng.choice(PAGES) + b"<p>Log in" * 200
    x.head(
        200, b"Content-Type: text/html", b"Content-Length: %d" % len(page), body=page
    )


def _endless(content: bytes, *headers: bytes) -> Fault:
    def answer(x: Exchange) -> None:
        x.head(200, *headers)
        while not x.over.is_set():
            x.send(content)

    return answer


def _redirected_for_ever(x: Exchange) -> None:
    x.head(
        302,
        b"Location: " + x.here.encode() + b"redirected_for_ever",
        b"Content-Length: 999999",
    )
    FAULTS["endless_body"](x)


def _silent_after_the_start(x: Exchange) -> None:
    _cut(x)
    x.over.wait(10)


def _dripping(x: Exchange) -> None:
    status, headers, body = x.answer()
    x.head(status, *headers, b"Content-Length: %d" % len(body))
    x.slowly(body[i : i + 1] for i in range(len(body)))


def _dripping_headers(x: Exchange) -> None:
    x.send(b"HTTP/1.1 200 OK\r\n")
    x.slowly(itertools.repeat(b"x"))


def _reset(x: Exchange) -> None:
    if x.rng.random() < 0.5:
        _cut(x)
    x.connection.setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )


FAULTS: dict[str, Fault] = {
    "cut": _cut,
    "chunked": lambda x: x.whole(
        CHUNKED, body=lambda body: _chunked(body) + b"0\r\n\r\n"
    ),
    "chunked_and_cut": lambda x: x.whole(
        CHUNKED, body=lambda body: x.part(_chunked(body))
    ),
    "chunked_badly": _chunked_badly,
    "other_transfer_encoding": lambda x: x.respond(b"Transfer-Encoding: gzip, chunked"),
    "without_length": lambda x: x.whole(),
    "without_length_and_cut": lambda x: x.whole(body=x.part),
    "impossible_length": lambda x: x.respond(length=x.rng.choice(LENGTHS)),
    "two_lengths": lambda x: x.respond(b"Content-Length: 7"),
    "length_too_large": lambda x: x.respond(
        length=b"%d" % (len(x.answer()[2]) + x.rng.choice([1, 1000]))
    ),
    "length_enormous": lambda x: x.respond(length=b"9" * 14),
    "length_too_small": lambda x: x.whole(body=x.part, counted=True),
    "flipped_byte": lambda x: x.whole(body=_flipped, counted=True),
    "changed": _changed,
    "range_ignored": _without("range"),
    "version_ignored": _without("if-range"),
    "another_range": _another_range,
    "several_ranges": _several_ranges,
    "no_such_range": lambda x: x.head(416, b"Content-Range: bytes */3"),
    "lie_of_being_complete": _lie_of_being_complete,
    "content_encoding": lambda x: x.whole(
        b"Content-Encoding: gzip", body=gzip.compress, counted=True
    ),
    "web_page": _web_page,
    "other_status": lambda x: x.head(
        x.rng.choice(STATUSES), b"Content-Length: 5", body=b"sorry"
    ),
    "come_back_later": lambda x: x.head(
        x.rng.choice([429, 503]),
        b"Retry-After: " + x.rng.choice(LATER),
        b"Content-Length: 0",
    ),
    "redirected": lambda x: x.head(
        x.rng.choice([301, 302, 303, 307, 308]),
        b"Location: " + x.here.encode() + b"honest",
    ),
    "redirected_for_ever": _redirected_for_ever,
    "redirected_elsewhere": lambda x: x.head(
        301, b"Location: " + x.rng.choice(TARGETS)
    ),
    "redirected_nowhere": lambda x: x.head(302, b"Content-Length: 0"),
    "silent": lambda x: x.over.wait(10),
    "silent_after_the_start": _silent_after_the_start,
    "dripping": _dripping,
    "dripping_headers": _dripping_headers,
    "endless_headers": lambda x: x.send(
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(1000))
    ),
    "enormous_header": lambda x: x.send(
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n"
    ),
    "endless_continue": lambda x: x.slowly(
        itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n")
    ),
    "endless_body": _endless(b"ACGT" * 16384),
    "endless_chunks": _endless(_chunked(b"ACGT" * 16384), CHUNKED),
    "no_http": lambda x: x.send(x.rng.choice(NO_HTTP)),
    "closed": lambda x: None,
    "reset": _reset,
}


class _Handler(socketserver.BaseRequestHandler):
    server: "FaultyServer"

    def handle(self) -> None:
        self.request.settimeout(5)
        try:
            with self.request.makefile("rb") as lines:
                words = lines.readline().split()
                headers = {}
                while (line := lines.readline().strip()) and b":" in line:
                    name, _, value = line.decode("latin-1").partition(":")
                    headers[name.strip().lower()] = value.strip()
            if len(words) != 3:
                return
            # /SITE/ADDRESS/, then the file's name or a fault's; of a proxy also a whole address, or a host
            path = (
                "/tunnel/0/"
                if words[0] == b"CONNECT"
                else urlsplit(words[1].decode()).path
            )
            _, name, address, what = path.split("/")
            site = self.server.sites[name]
            here = f"http://127.0.0.1:{self.server.server_address[1]}/{name}/{address}/"
            exchange = Exchange(self.request, site, headers, here, self.server.over)
            site.asked.append(headers)
            chosen = (
                what
                if what in FAULTS
                else None
                if what == "honest"
                else site.next_fault(int(address))
            )
            (FAULTS[chosen] if isinstance(chosen, str) else chosen or Exchange.respond)(
                exchange
            )
        except OSError:
            pass  # the client has had enough


class FaultyServer(socketserver.ThreadingTCPServer):
    """Serves sites by name."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sites: dict[str, Site] = {}
        self.over = threading.Event()

    def url(self, name: str, address: int, file: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}/{address}/{file}"


@contextmanager
def running() -> Iterator[FaultyServer]:
    """A server that answers until the block ends."""
    with FaultyServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()


CONTENT = bytes(range(256)) * 400  # of the one file of some tests
LIMITS = Limits(
    silence=0.25,
    answer=0.35,
    rate=20_000,
    window=0.15,
    futile=3,
    attempts=6,
    seconds=1.5,
    pause=0.001,
    longest_pause=0.05,
    redirects=4,
)


def plain(rng: Random) -> bytes:
    lines = (
        f"chr{rng.randrange(23)}\t{rng.randrange(10**8)}\t{rng.random()}\n"
        for _ in range(rng.randrange(400))
    )
    return "".join(("contig\tposition\tvalue\n", *lines)).encode()


def described(
    server: FaultyServer, name: str, kind: str, checksum: str | None
) -> Source:
    urls = tuple(
        server.url(name, address, "file")
        for address in range(len(server.sites[name].scripts))
    )
    return Source(
        name,
        kind.removeprefix("sha256 of "),
        "demo",
        urls,
        checksum,
        0.02,
        "free",
        "us",
    )


def one_line(error: BigBirdDnaError) -> bool:
    text = str(error)
    return (
        text.isprintable()
        and len(text) < 3000
        and isinstance(error, DataError | UsageError)
    )


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def fetched(output: Path, limits: Limits = LIMITS, key: str = "one") -> bytes:
    """What a download brings."""
    fetch(key, output, limits=limits)
    return output.read_bytes()


def refusal(output: Path, limits: Limits = LIMITS) -> str:
    """What is said where a download fails."""
    with pytest.raises(DataError) as caught:
        fetch("one", output, limits=limits)
    assert one_line(caught.value)
    assert not output.exists()
    return str(caught.value)
