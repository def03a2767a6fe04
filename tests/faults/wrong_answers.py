"""Everything wrong that a web server can do, by name."""

import gzip
import itertools
import socket
import struct
from collections.abc import Callable

from tests.faults.exchange import Exchange

CHUNK = 700  # bytes, of chunked answers
FAULTS: dict[str, Callable[[Exchange], None]] = {}
LIES = {"length_too_small", "flipped_byte", "lie_of_being_complete"}
"""Faults that nobody can see in a plain file without a checksum."""


def fault(function: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
    FAULTS[function.__name__] = function
    return function


def _chunked(body: bytes) -> bytes:
    pieces = [body[i : i + CHUNK] for i in range(0, len(body), CHUNK)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


@fault
def cut(x: Exchange) -> None:
    x.respond(cut=len(x.part(x.answer()[2])))


@fault
def chunked(x: Exchange) -> None:
    status, headers, body = x.answer()
    x.head(status, *headers, b"Transfer-Encoding: chunked")
    x.send(_chunked(body) + b"0\r\n\r\n")


@fault
def chunked_and_cut(x: Exchange) -> None:
    status, headers, body = x.answer()
    x.head(status, *headers, b"Transfer-Encoding: chunked")
    x.send(x.part(_chunked(body)))


@fault
def chunked_badly(x: Exchange) -> None:
    status, headers, body = x.answer()
    x.head(status, *headers, b"Transfer-Encoding: chunked")
    size = x.rng.choice([b"-5", b"zz", b"f" * 30, b"", b"9" * 70000])
    x.send(_chunked(body[:CHUNK]) + size + b"\r\n" + body[CHUNK:])


@fault
def other_transfer_encoding(x: Exchange) -> None:
    x.respond(b"Transfer-Encoding: gzip, chunked")


@fault
def without_length(x: Exchange) -> None:
    status, headers, body = x.answer()
    x.head(status, *headers)
    x.send(body)


@fault
def without_length_and_cut(x: Exchange) -> None:
    status, headers, body = x.answer()
    x.head(status, *headers)
    x.send(x.part(body))


@fault
def impossible_length(x: Exchange) -> None:
    x.respond(length=x.rng.choice([b"abc", b"-5", b"\xb2", b"", b"1e9", b"0x10", b"9" * 5000, b"5, 6"]))


@fault
def two_lengths(x: Exchange) -> None:
    x.respond(b"Content-Length: 7")


@fault
def length_too_large(x: Exchange) -> None:
    x.respond(length=b"%d" % (len(x.answer()[2]) + x.rng.choice([1, 1000])))


@fault
def length_enormous(x: Exchange) -> None:
    x.respond(length=b"9" * 14)


@fault
def length_too_small(x: Exchange) -> None:
    status, headers, body = x.answer()
    body = x.part(body)
    x.head(status, *headers, b"Content-Length: %d" % len(body))
    x.send(body)


@fault
def flipped_byte(x: Exchange) -> None:
    status, headers, body = x.answer()
    middle = len(body) // 2
    x.head(status, *headers, b"Content-Length: %d" % len(body))
    x.send(body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :] if body else b"")


@fault
def changed(x: Exchange) -> None:
    if x.site.later:
        x.site.content, x.site.tag = x.site.later, b'"v2"' if x.site.tag else None
    cut(x)


@fault
def range_ignored(x: Exchange) -> None:
    x.headers.pop("range", None)
    x.respond()


@fault
def version_ignored(x: Exchange) -> None:
    x.headers.pop("if-range", None)
    x.respond()


@fault
def another_range(x: Exchange) -> None:
    _, headers, _ = x.answer()
    size = len(x.site.content)
    told = x.rng.choice(
        [
            b"bytes 7-%d/%d" % (size - 1, size),
            b"bytes 0-%d/*" % (size - 1),
            b"bytes 9-3/2",
            b"lines 1-2/3",
            b"\xff",
        ]
    )
    tags = [line for line in headers if line.startswith(b"ETag")]
    x.head(206, *tags, b"Content-Range: " + told, b"Content-Length: %d" % (size - 7))
    x.send(x.site.content[7:])


@fault
def several_ranges(x: Exchange) -> None:
    x.head(206, b"Content-Type: multipart/byteranges; boundary=x")
    x.send(b"--x\r\nContent-Range: bytes 0-1/9\r\n\r\nab\r\n--x--\r\n")


@fault
def no_such_range(x: Exchange) -> None:
    x.head(416, b"Content-Range: bytes */3")


@fault
def lie_of_being_complete(x: Exchange) -> None:
    start = int(x.headers.get("range", "bytes=0-")[len("bytes=") : -1])
    x.head(416, b"Content-Range: bytes */%d" % start)


@fault
def content_encoding(x: Exchange) -> None:
    status, headers, body = x.answer()
    body = gzip.compress(body)
    x.head(status, *headers, b"Content-Encoding: gzip", b"Content-Length: %d" % len(body))
    x.send(body)


@fault
def web_page(x: Exchange) -> None:
    page = x.rng.choice([b"<!DOCTYPE html>", b"\n <HTML>", b"\xef\xbb\xbf<html>"]) + b"<p>Log in" * 200
    x.head(200, b"Content-Type: text/html", b"Content-Length: %d" % len(page))
    x.send(page)


@fault
def other_status(x: Exchange) -> None:
    refusals = (400, 401, 403, 404, 407, 410, 418, 451, 511)
    status = x.rng.choice([201, 204, 206, 300, 304, 408, 425, 500, 501, 502, 503, 504, 599, 999, *refusals])
    x.head(status, b"Content-Length: 5")
    x.send(b"sorry")


@fault
def come_back_later(x: Exchange) -> None:
    later = [b"0", b"0", b"3600", b"-1", b"soon", b"\xe9", b"Fri, 31 Dec 9999 23:59:59 GMT", b"9" * 400]
    x.head(x.rng.choice([429, 503]), b"Retry-After: " + x.rng.choice(later), b"Content-Length: 0")


@fault
def redirected(x: Exchange) -> None:
    x.head(x.rng.choice([301, 302, 303, 307, 308]), b"Location: " + x.here.encode() + b"honest")


@fault
def redirected_for_ever(x: Exchange) -> None:
    x.head(302, b"Location: " + x.here.encode() + b"redirected_for_ever", b"Content-Length: 999999")
    endless_body(x)


@fault
def redirected_elsewhere(x: Exchange) -> None:
    targets = [
        b"file:///etc/passwd",
        b"ftp://localhost/x",
        b"data:,x",
        b"http://[",
        b"http://a..b/",
        b"//",
        b"\xff \x01",
    ]
    others = [
        b"http://localhost:99999/",
        b"http://localhost:x/",
        b"http://",
        b"gopher://x",
        b"http://127.0.0.1:9/",
    ]
    x.head(301, b"Location: " + x.rng.choice(targets + others))


@fault
def redirected_nowhere(x: Exchange) -> None:
    x.head(302, b"Content-Length: 0")


@fault
def silent(x: Exchange) -> None:
    x.over.wait(10)


@fault
def silent_after_the_start(x: Exchange) -> None:
    x.respond(cut=len(x.part(x.answer()[2])))
    x.over.wait(10)


@fault
def dripping(x: Exchange) -> None:
    status, headers, body = x.answer()
    x.head(status, *headers, b"Content-Length: %d" % len(body))
    x.slowly(body[i : i + 1] for i in range(len(body)))


@fault
def dripping_headers(x: Exchange) -> None:
    x.send(b"HTTP/1.1 200 OK\r\n")
    x.slowly(itertools.repeat(b"x"))


@fault
def endless_headers(x: Exchange) -> None:
    x.send(b"HTTP/1.1 200 OK\r\n")
    for number in range(1000):
        x.send(b"X-%d: y\r\n" % number)


@fault
def enormous_header(x: Exchange) -> None:
    x.send(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n")


@fault
def endless_continue(x: Exchange) -> None:
    x.slowly(itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n"))


@fault
def endless_body(x: Exchange) -> None:
    x.head(200)
    while not x.over.is_set():
        x.send(b"ACGT" * 16384)


@fault
def endless_chunks(x: Exchange) -> None:
    x.head(200, b"Transfer-Encoding: chunked")
    while not x.over.is_set():
        x.send(_chunked(b"ACGT" * 16384))


@fault
def no_http(x: Exchange) -> None:
    x.send(
        x.rng.choice(
            [
                b"\x1b[31mred\r\n\r\n",
                b"HTTP/9 x\r\n\r\n",
                b"HTTP/1.1 -1 \xff\r\n\r\n",
                b"\0" * 100,
                b"220 FTP\r\n",
            ]
        )
    )


@fault
def closed(x: Exchange) -> None:
    pass


@fault
def reset(x: Exchange) -> None:
    if x.rng.random() < 0.5:
        x.respond(cut=len(x.part(x.answer()[2])))
    x.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
