"""One file from one address, going on where an earlier attempt was cut."""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

from bigbird_dna.console import log, progress

ATTEMPTS = 4
TIMEOUT = 60.0  # seconds without a byte
PAUSE = 2.0  # seconds
_CHUNK = 1 << 20
# The server says that it won't ever: no use in asking again.
_FINAL_STATUSES = frozenset({400, 401, 403, 404, 405, 410, 451})


class DownloadError(Exception):
    """An address didn't give its file; the text says why."""


class _Cut(Exception):
    """The connection failed or ended early; another attempt may get further."""


def download(
    url: str, part: Path, *, any_server: bool = False, pause: float = PAUSE, attempts: int = ATTEMPTS
) -> bool:
    """Fetch `url` into `part`; return whether some of its bytes come from an earlier request.

    A cut connection leaves what came in `part`, and the next attempt or call asks for the rest (HTTP Range).
    Beside it, `part`.json keeps the address and the server's mark of the file's version (ETag or
    Last-Modified), and the rest is taken only from the same version at the same address.

    Parameters
    ----------
    any_server
        The caller knows the file's checksum: go on from whatever is in `part`, be it from a mirror.
    pause
        Seconds before another attempt, doubled after each that gets no further.
    attempts
        In a row that get no further, before giving up.

    Raises
    ------
    DownloadError
        The server hasn't got the file, or attempts failed. `part` stays.
    """
    resumed = False
    failures, most = 0, _size(part)
    while True:
        try:
            resumed = _attempt(url, part, any_server) or resumed
        except _Cut as error:
            # One that got further than all before is no failure.
            failures = 1 if _size(part) > most else failures + 1
            most = max(most, _size(part))
            if failures == attempts:
                raise DownloadError(str(error)) from None
            log(f"{url}: {error}; trying again")
            time.sleep(pause * 2 ** (failures - 1))
        else:
            _marks_path(part).unlink(missing_ok=True)
            return resumed


def _attempt(url: str, part: Path, any_server: bool) -> bool:
    """Ask once for what `part` lacks; return whether it went on from bytes that were there."""
    headers = {"User-Agent": "bigbird-dna", "Accept-Encoding": "identity"}
    have = _size(part)
    if have and not any_server:
        mark = _read_marks(part).get(url)
        if mark is None:
            have = 0
        else:
            headers["If-Range"] = mark
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT
        ) as response:
            if getattr(response, "status", None) != http.HTTPStatus.PARTIAL_CONTENT:
                have = 0  # the whole file: no Range there (FTP has none), or another version
            elif not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                raise DownloadError("the server sent another part of the file than asked for")
            _receive(url, response, part, have)
            return have > 0
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
                return _beyond_the_end(error.headers, part, have)
            reason = f"HTTP {error.code} {error.reason}"
            if error.code in _FINAL_STATUSES:
                raise DownloadError(reason) from None
            raise _Cut(reason) from None
    except urllib.error.URLError as error:
        raise DownloadError(f"can't be reached: {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        raise _Cut(f"connection lost: {error or type(error).__name__}") from None


def _beyond_the_end(headers: Message, part: Path, have: int) -> bool:
    """The server has nothing after what we have: it is complete, or it is not the server's file."""
    if headers.get("Content-Range", "").rpartition("/")[2] == str(have):
        return True
    part.unlink()
    raise _Cut(f"the {have:,} bytes that were there are not of this file")


def _receive(url: str, response: Any, part: Path, have: int) -> None:
    headers: Message = response.headers
    length = headers.get("Content-Length")
    total = None if length is None else have + int(length)
    mark = headers.get("ETag") or headers.get("Last-Modified")
    # A weak ETag (W/"…") doesn't promise the same bytes.
    if mark is not None and mark.startswith("W/"):
        mark = headers.get("Last-Modified")
    _marks_path(part).write_text(json.dumps({url: mark} if mark else {}))
    bar_length = -(-int(length) // _CHUNK) if length else None
    try:
        with part.open("ab" if have else "wb") as stream:
            for chunk in progress(_chunks(response), part.stem, bar_length):
                stream.write(chunk)
                have += len(chunk)
    except OSError as error:
        raise DownloadError(f"{part}: {error.strerror}") from None
    if total is not None and have != total:
        raise _Cut(f"connection lost after {have:,} of {total:,} bytes")


def _chunks(response: Any) -> Iterator[bytes]:
    """What the server sends; its faults as `_Cut`, to tell them from those of the disk."""
    try:
        while chunk := response.read(_CHUNK):
            yield chunk
    except (OSError, http.client.HTTPException) as error:
        raise _Cut(f"connection lost: {error or type(error).__name__}") from None


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _marks_path(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_marks(part: Path) -> dict[str, str]:
    try:
        marks: dict[str, str] = json.loads(_marks_path(part).read_text())
    except (OSError, ValueError):
        return {}
    return marks
