"""One request of a public file, whose answer comes in time or not at all, and what its failure means.

A thread asks and listens; who asked takes what arrives, with a time limit for everything. Redirects are
followed here: to web addresses alone, and never from a safe one to one in clear.
"""

import http.client
import queue
import re
import socket
import ssl
import string
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import Message
from typing import Any, NamedTuple

from bigbird_dna.errors import error_text

_SHOWN = 200  # characters of what a server says
# Another attempt may get another answer.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_WORDS = {
    401: "it wants a login",
    403: "the server, or a firewall or proxy on the way, refuses it",
    404: "the file isn't there, and may have moved",
    407: "the proxy wants a login: https_proxy=http://USER:PASSWORD@HOST:PORT gives one",
    410: "the file isn't there any more",
    429: "it was asked too often",
    451: "it is withheld for legal reasons",
    503: "the server is overloaded or closed for maintenance",
    511: "the network here wants a login first (a captive portal)",
}


class DownloadError(Exception):
    """An address didn't give its file; the text, of one line, says why."""


class Cut(Exception):
    """An attempt failed, and another one may get further.

    `wait` is how many seconds the server asks to wait.
    """

    def __init__(self, text: str, wait: float | None = None) -> None:
        super().__init__(text)
        self.wait = wait


def one_line(text: object) -> str:
    """What a server, or an error about one, says: on one line, and nothing that a terminal obeys."""
    line = error_text(text) if isinstance(text, BaseException) else " ".join(str(text).split())
    line = "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in line)
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def refused(status: int, wait: float | None = None) -> Exception:
    """An answer that is not a file, as the `Cut` or `DownloadError` to raise."""
    words = _WORDS.get(status)
    if words is None:
        kind = "an error inside the server" if status >= 500 else "no file"
        # The server's own phrase may hold anything.
        words = f"{http.client.responses.get(status, 'an unknown status')}: {kind}"
    text = f"HTTP {status}: {words}"
    return Cut(text, wait) if status in _PASSING else DownloadError(text)


def unreachable(reason: object, url: str, silence: float) -> Exception:
    """A connection that didn't come about, as the `Cut` or `DownloadError` to raise."""
    host, via = one_line(urllib.parse.urlsplit(url).hostname), proxy_of(url)
    tunnel = re.match(r"Tunnel connection failed: (\d{3})\b", str(reason))
    if tunnel:
        error = refused(int(tunnel[1]))
        return type(error)(f"{error}{via}")
    match reason:
        case socket.gaierror():
            whose = "proxy" if via else "server"
            text = f"the name of the {whose} can't be looked up: no network, or no DNS here"
        case ConnectionRefusedError():
            text = "connection refused: nothing listens there, or a firewall is in between"
        case TimeoutError():
            text = f"no connection within {silence:g} s: a firewall may be in between"
        case ssl.SSLCertVerificationError():
            text = (
                f"its TLS certificate isn't valid ({one_line(reason.verify_message)}): the clock here is "
                "wrong, or a proxy opens TLS, whose certificate SSL_CERT_FILE can name"
            )
        case ConnectionError() | ssl.SSLEOFError():
            return Cut(f"connection lost: {one_line(reason)}{via}")
        case ssl.SSLError():
            text = f"no TLS connection ({one_line(reason.reason or reason)})"
        case OSError():
            text = one_line(reason.strerror or reason)
        case _:
            text = one_line(reason)
    return DownloadError(f"{host} can't be reached: {text}{via}")


def proxy_of(url: str) -> str:
    """Which proxy of the environment an address goes through, as a clause without its password."""
    parts = urllib.parse.urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or (parts.hostname and urllib.request.proxy_bypass(parts.hostname)):
        return ""
    try:
        proxy_parts = urllib.parse.urlsplit(proxy if "//" in proxy else f"//{proxy}")
        where = f"{proxy_parts.hostname}:{proxy_parts.port}"
    except ValueError:
        where = "that the environment names"
    return f" (through the proxy {one_line(where)})"


CHUNK = 1 << 20
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LOST = (OSError, EOFError, http.client.HTTPException)


@dataclass(frozen=True)
class Limits:
    """How long and how often one address is asked; times in seconds."""

    silence: float = 60.0  # until connected, and without a byte
    answer: float = 120.0  # until the file begins to come, with all redirects
    rate: float = 1000.0  # bytes a second, at least,
    window: float = 60.0  # over each period of this length
    futile: int = 4  # attempts in a row that bring less than `rate` × `window` bytes
    attempts: int = 50  # in all
    seconds: float = 24 * 3600.0  # in all
    pause: float = 2.0  # before another attempt; doubled after each that was futile
    longest_pause: float = 300.0  # also where the server asks for a longer one
    redirects: int = 10


LIMITS = Limits()


class HttpResponse(NamedTuple):
    """How an answer begins."""

    url: str  # after redirects
    status: int
    headers: Message


@contextmanager
def ask(
    url: str, headers: Mapping[str, str], limits: Limits = LIMITS, deadline: float = float("inf")
) -> Iterator[tuple[HttpResponse, Iterator[bytes]]]:
    """Give the beginning of a server's answer, and the bytes after it as they come, until `deadline`
    (`time.monotonic`).

    `DownloadError`: the address can't be asked, redirects to none that may be followed, or time is over.
    `Cut`: the connection was lost, or is too slow; also while the bytes are taken.
    """
    inbox: queue.Queue[Any] = queue.Queue(maxsize=4)
    enough = threading.Event()
    threading.Thread(target=_listen, args=(url, headers, limits, inbox, enough), daemon=True).start()
    try:
        until = time.monotonic() + limits.answer
        answer = _take(inbox, min(until, deadline))
        if answer is None:
            if until <= deadline:
                raise Cut(f"no answer within {limits.answer:g} s")
            raise _out_of_time(limits)
        yield answer, _chunks(inbox, limits, deadline)
    finally:
        enough.set()


def _out_of_time(limits: Limits) -> DownloadError:
    return DownloadError(f"not done within the {limits.seconds:g} s that an address gets")


def _chunks(inbox: queue.Queue[Any], limits: Limits, deadline: float) -> Iterator[bytes]:
    start, received = time.monotonic(), 0
    while True:
        end = start + limits.window
        chunk = _take(inbox, min(end, deadline))
        now = time.monotonic()
        if chunk == b"":
            return
        if now >= deadline:
            raise _out_of_time(limits)
        received += len(chunk or b"")
        if chunk:
            yield chunk
        if now >= end:
            if received < limits.rate * limits.window:
                raise Cut(f"slower than {limits.rate:g} bytes a second for {limits.window:g} s")
            start, received = now, 0


def _take(inbox: queue.Queue[Any], until: float) -> Any:
    """What the thread received next; `None` if that is nothing, and its errors raised."""
    try:
        item = inbox.get(timeout=max(0.0, min(until - time.monotonic(), threading.TIMEOUT_MAX)))
    except queue.Empty:
        return None
    if isinstance(item, Exception):
        raise item
    return item


def _listen(
    url: str, headers: Mapping[str, str], limits: Limits, inbox: queue.Queue[Any], enough: threading.Event
) -> None:
    """In the thread: put the answer, its bytes and an empty chunk into the inbox, or the error that came."""

    def put(item: object) -> bool:
        while not enough.is_set():
            with suppress(queue.Full):
                inbox.put(item, timeout=0.1)
                return True
        return False

    try:
        response, url = _open(url, headers, limits, enough)
        with response:
            # FTP has no status.
            put(HttpResponse(url, getattr(response, "status", None) or http.HTTPStatus.OK, response.headers))
            try:
                while put(chunk := response.read1(CHUNK)) and chunk:
                    pass
            except _LOST as error:
                put(Cut(f"connection lost: {one_line(error)}"))
    except Exception as error:
        put(error)


def _open(url: str, headers: Mapping[str, str], limits: Limits, enough: threading.Event) -> tuple[Any, str]:
    """Ask, and ask again where the answer is a redirect; the last answer and its address."""
    # No handler for errors and redirects: every answer comes as it is. None for file: either.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.FTPHandler(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    for _ in range(limits.redirects + 1):
        response = _request(opener, url, headers, limits)
        status = getattr(response, "status", None)
        if status not in _REDIRECTS:
            return response, url
        with response:
            url = redirected(url, status, response.headers.get("Location"))
        if enough.is_set():
            break
    raise DownloadError(f"more than {limits.redirects} redirects, the last one to {one_line(url)}")


def _request(
    opener: urllib.request.OpenerDirector, url: str, headers: Mapping[str, str], limits: Limits
) -> Any:
    try:
        return opener.open(urllib.request.Request(url, headers=dict(headers)), timeout=limits.silence)
    except urllib.error.URLError as error:
        raise unreachable(error.reason, url, limits.silence) from None
    except (http.client.InvalidURL, ValueError):
        # What Python says here may hold the proxy's password.
        proxy = proxy_of(url)
        what = "the proxy that the environment names has" if proxy else "the server has"
        raise DownloadError(f"can't be asked: {what} no valid address") from None
    except (ssl.SSLError, socket.gaierror) as error:
        raise unreachable(error, url, limits.silence) from None
    except http.client.BadStatusLine as error:
        # Nothing at all is one as well.
        what = (
            "connection lost"
            if isinstance(error, http.client.RemoteDisconnected)
            else "its answer is not HTTP"
        )
        raise Cut(f"{what}: {one_line(error)}{proxy_of(url)}") from None
    except _LOST as error:
        raise Cut(f"connection lost: {one_line(error)}{proxy_of(url)}") from None


def redirected(url: str, status: int, location: str | None) -> str:
    """The address that a redirect leads to, if it may be followed."""
    if not location:
        raise DownloadError(f"HTTP {status}: a redirect that doesn't say where to")
    try:
        quoted = urllib.parse.quote(location, encoding="latin-1", safe=string.punctuation)
        target = urllib.parse.urldefrag(urllib.parse.urljoin(url, quoted)).url
        parts = urllib.parse.urlsplit(target)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    where = f"HTTP {status}: redirected to {one_line(location)}"
    if not usable or parts.scheme not in ("http", "https"):
        raise DownloadError(f"{where}, which is not a web address")
    if url.startswith("https:") and parts.scheme == "http":
        raise DownloadError(
            f"{where}, which isn't followed: from https to http anybody could change the file"
        )
    return target
