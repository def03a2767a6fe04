"""What went wrong between here and a server, in words that somebody can act on."""

import re
import socket
import ssl
import urllib.parse
import urllib.request
from http import HTTPStatus

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


def said(text: object) -> str:
    """What a server, or an error about one, says: on one line, and nothing that a terminal obeys."""
    line = error_text(text) if isinstance(text, BaseException) else " ".join(str(text).split())
    line = "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in line)
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def refused(status: int, wait: float | None = None) -> Exception:
    """An answer that is not a file, as the `Cut` or `DownloadError` to raise."""
    words = _WORDS.get(status)
    if words is None:
        kind = "an error inside the server" if status >= 500 else "no file"
        words = f"{_phrase(status)}: {kind}"
    text = f"HTTP {status}: {words}"
    return Cut(text, wait) if status in _PASSING else DownloadError(text)


def _phrase(status: int) -> str:
    # The server's own phrase may hold anything.
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "an unknown status"


def unreachable(reason: object, url: str, silence: float) -> Exception:
    """A connection that didn't come about, as the `Cut` or `DownloadError` to raise."""
    host, via = said(urllib.parse.urlsplit(url).hostname), proxy_of(url)
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
                f"its TLS certificate isn't valid ({said(reason.verify_message)}): the clock here is "
                "wrong, or a proxy opens TLS, whose certificate SSL_CERT_FILE can name"
            )
        case ConnectionError() | ssl.SSLEOFError():
            return Cut(f"connection lost: {said(reason)}{via}")
        case ssl.SSLError():
            text = f"no TLS connection ({said(reason.reason or reason)})"
        case OSError():
            text = said(reason.strerror or reason)
        case _:
            text = said(reason)
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
    return f" (through the proxy {said(where)})"
