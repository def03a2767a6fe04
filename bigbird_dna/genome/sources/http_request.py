"""Request a public file over the network with time limits, and explain failures.

A thread sends the request and receives the response; the caller takes the data with a time limit for each
step. Redirects are followed here, only to web addresses and never from https to http.
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

_SHOWN = 200  # maximum characters of a server's text
# Another attempt may succeed.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_WORDS = {
    401: "the server requires a login",
    403: "the server, or a firewall or proxy in between, denies access",
    404: "the file does not exist at this address, it may have moved",
    407: "the proxy requires a login; set https_proxy=http://USER:PASSWORD@HOST:PORT",
    410: "the file no longer exists at this address",
    429: "too many requests",
    451: "unavailable for legal reasons",
    503: "the server is overloaded or closed for maintenance",
    511: "the network requires a login first (a captive portal)",
}


class DownloadError(Exception):
    """A file cannot be downloaded from an address; the message, of one line, is the reason."""


class Cut(Exception):
    """An attempt failed, but another attempt may get further.

    `wait` is the number of seconds the server asks to wait.
    """

    def __init__(self, text: str, wait: float | None = None) -> None:
        super().__init__(text)
        self.wait = wait


def one_line(text: object) -> str:
    """Return a server's text or an error on one line, without characters that control a terminal."""
    line = (
        error_text(text)
        if isinstance(text, BaseException)
        else " ".join(str(text).split())
    )
    line = "".join(
        letter if letter.isascii() and letter.isprintable() else "?" for letter in line
    )
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def refused(status: int, wait: float | None = None) -> Exception:
    """Return the `Cut` or `DownloadError` to raise for a response without a file."""
    words = _WORDS.get(status)
    if words is None:
        kind = "an error inside the server" if status >= 500 else "no file"
        # The server's own phrase may contain anything.
        words = f"{http.client.responses.get(status, 'an unknown status')}: {kind}"
    text = f"HTTP {status}: {words}"
    return Cut(text, wait) if status in _PASSING else DownloadError(text)


def unreachable(reason: object, url: str, silence: float) -> Exception:
    """Return the `Cut` or `DownloadError` to raise for a failed connection."""
    host, via = one_line(urllib.parse.urlsplit(url).hostname), proxy_of(url)
    tunnel = re.match(r"Tunnel connection failed: (\d{3})\b", str(reason))
    if tunnel:
        error = refused(int(tunnel[1]))
        return type(error)(f"{error}{via}")
    match reason:
        case socket.gaierror():
            whose = "proxy" if via else "server"
            text = f"cannot look up the name of the {whose}: no network, or no DNS"
        case ConnectionRefusedError():
            text = (
                "no server listens on this port, or a firewall rejects the connection"
            )
        case TimeoutError():
            text = f"no connection within {silence:g} s: possibly a firewall in between"
        case ssl.SSLCertVerificationError():
            text = (
                f"its TLS certificate is invalid ({one_line(reason.verify_message)}); check this computer's "
                "clock, or set SSL_CERT_FILE to the certificate of a proxy that decrypts TLS"
            )
        case ConnectionError() | ssl.SSLEOFError():
            return Cut(f"connection lost: {one_line(reason)}{via}")
        case ssl.SSLError():
            text = f"no TLS connection ({one_line(reason.reason or reason)})"
        case OSError():
            text = one_line(reason.strerror or reason)
        case _:
            text = one_line(reason)
    return DownloadError(f"cannot reach {host}: {text}{via}")


def proxy_of(url: str) -> str:
    """Describe the proxy from the environment for an address as a clause without its password."""
    parts = urllib.parse.urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or (parts.hostname and urllib.request.proxy_bypass(parts.hostname)):
        return ""
    try:
        proxy_parts = urllib.parse.urlsplit(proxy if "//" in proxy else f"//{proxy}")
        where = f"{proxy_parts.hostname}:{proxy_parts.port}"
    except ValueError:
        where = "from the environment"
    return f" (through the proxy {one_line(where)})"


CHUNK = 1 << 20
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LOST = (OSError, EOFError, http.client.HTTPException)


@dataclass(frozen=True)
class Limits:
    """Time limits in seconds, and numbers of attempts, for one address."""

    silence: float = 60.0  # to connect, and without receiving a byte
    answer: float = 120.0  # until the file's first byte, including all redirects
    rate: float = 1000.0  # minimum bytes per second
    window: float = 60.0  # length of the periods for `rate`
    futile: int = 4  # consecutive attempts with less than `rate` × `window` bytes
    attempts: int = 50  # in total
    seconds: float = 24 * 3600.0  # in total
    pause: float = 2.0  # before another attempt; doubled after each futile attempt
    longest_pause: float = 300.0  # a server that asks for a longer pause is an error
    redirects: int = 10


LIMITS = Limits()


class HttpResponse(NamedTuple):
    """The beginning of a response."""

    url: str  # after redirects
    status: int
    headers: Message


@contextmanager
def ask(
    url: str,
    headers: Mapping[str, str],
    limits: Limits = LIMITS,
    deadline: float = float("inf"),
) -> Iterator[tuple[HttpResponse, Iterator[bytes]]]:
    """Yield the beginning of a server's response and an iterator over its bytes.

    `DownloadError`: the address is invalid, it redirects to an address that must not be followed, or the
    `deadline` (`time.monotonic`) is over. `Cut`: the connection was lost or is too slow, also during reading.
    """
    inbox: queue.Queue[Any] = queue.Queue(maxsize=4)
    enough = threading.Event()
    threading.Thread(
        target=_listen, args=(url, headers, limits, inbox, enough), daemon=True
    ).start()
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
    return DownloadError(
        f"not complete within the limit of {limits.seconds:g} s per address"
    )


def _chunks(
    inbox: queue.Queue[Any], limits: Limits, deadline: float
) -> Iterator[bytes]:
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
                raise Cut(
                    f"slower than {limits.rate:g} bytes per second for {limits.window:g} s"
                )
            start, received = now, 0


def _take(inbox: queue.Queue[Any], until: float) -> Any:
    """Return the next item from the thread, or None if none arrives in time; raise the thread's errors."""
    try:
        item = inbox.get(
            timeout=max(0.0, min(until - time.monotonic(), threading.TIMEOUT_MAX))
        )
    except queue.Empty:
        return None
    if isinstance(item, Exception):
        raise item
    return item


def _listen(
    url: str,
    headers: Mapping[str, str],
    limits: Limits,
    inbox: queue.Queue[Any],
    enough: threading.Event,
) -> None:
    """Put the response, its bytes and an empty chunk into the inbox, or an error (runs in the thread)."""

    def put(item: object) -> bool:
        while not enough.is_set():
            with suppress(queue.Full):
                inbox.put(item, timeout=0.1)
                return True
        return False

    try:
        response, url = _open(url, headers, limits, enough)
        with response:
            # FTP has no status code.
            put(
                HttpResponse(
                    url,
                    getattr(response, "status", None) or http.HTTPStatus.OK,
                    response.headers,
                )
            )
            try:
                while put(chunk := response.read1(CHUNK)) and chunk:
                    pass
            except _LOST as error:
                put(Cut(f"connection lost: {one_line(error)}"))
    except Exception as error:
        put(error)


def _open(
    url: str, headers: Mapping[str, str], limits: Limits, enough: threading.Event
) -> tuple[Any, str]:
    """Send requests until the response is not a redirect; return the response and its address."""
    # Without handlers for errors and redirects, responses are returned unchanged. File URLs have no handler.
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
    raise DownloadError(
        f"more than {limits.redirects} redirects, the last one to {one_line(url)}"
    )


def _request(
    opener: urllib.request.OpenerDirector,
    url: str,
    headers: Mapping[str, str],
    limits: Limits,
) -> Any:
    try:
        return opener.open(
            urllib.request.Request(url, headers=dict(headers)), timeout=limits.silence
        )
    except urllib.error.URLError as error:
        raise unreachable(error.reason, url, limits.silence) from None
    except (http.client.InvalidURL, ValueError):
        # Python's message may contain the proxy's password.
        proxy = proxy_of(url)
        what = "the proxy from the environment has" if proxy else "the server has"
        raise DownloadError(
            f"cannot send a request: {what} an invalid address"
        ) from None
    except (ssl.SSLError, socket.gaierror) as error:
        raise unreachable(error, url, limits.silence) from None
    except http.client.BadStatusLine as error:
        # An empty response is a bad status line as well.
        what = (
            "connection lost"
            if isinstance(error, http.client.RemoteDisconnected)
            else "its answer is not HTTP"
        )
        raise Cut(f"{what}: {one_line(error)}{proxy_of(url)}") from None
    except _LOST as error:
        raise Cut(f"connection lost: {one_line(error)}{proxy_of(url)}") from None


def redirected(url: str, status: int, location: str | None) -> str:
    """Return the address of a redirect; `DownloadError` if it must not be followed."""
    if not location:
        raise DownloadError(f"HTTP {status}: a redirect without an address")
    try:
        quoted = urllib.parse.quote(
            location, encoding="latin-1", safe=string.punctuation
        )
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
            f"{where}, which is not followed because http does not protect the file from changes"
        )
    return target
