"""One file from one address, going on where an earlier attempt was cut."""

import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import NamedTuple

from bigbird_dna.console import log, progress
from bigbird_dna.genome.sources.http_request import (
    CHUNK,
    LIMITS,
    Cut,
    DownloadError,
    HttpResponse,
    Limits,
    ask,
)
from bigbird_dna.genome.sources.http_response import Body, OtherVersion, is_complete, is_page, read_answer
from bigbird_dna.genome.sources.partial_file import Part, check_room

_OVERSIZE = 4  # times what is expected, and
_SLACK = 1 << 20  # bytes, are taken at most
_HEAD = 512  # bytes that show a web page


class Wanted(NamedTuple):
    """What is known of a file before it comes."""

    file: str  # its name
    size: int  # in bytes, about
    any_server: bool = False  # its checksum is known: bytes of two servers may be put together


class Received(NamedTuple):
    """How a file came."""

    resumed: bool  # some of its bytes come from an earlier request
    ends: bool  # the server told where it ends


def download(
    url: str, part: Part, wanted: Wanted, limits: Limits = LIMITS, deadline: float | None = None
) -> Received:
    """Fetch the file at `url` into `part`.

    A cut connection leaves what came in `part`, and the next attempt or call asks for the rest (HTTP Range):
    of the same version at the same address, by the server's mark of it (ETag or Last-Modified), unless the
    caller knows the checksum.

    Parameters
    ----------
    deadline
        Of `time.monotonic`; none: `limits.seconds` from now.

    Raises
    ------
    DownloadError
        The server hasn't got the file, attempts failed or the time is over. `part` stays.
    DataError
        The disk takes no more. `part` stays.
    """
    deadline = time.monotonic() + limits.seconds if deadline is None else deadline
    enough = round(limits.rate * limits.window)
    futile, most = 0, part.size
    for attempt in range(1, limits.attempts + 1):
        try:
            return _attempt(url, part, wanted, limits, deadline)
        except Cut as error:
            # Little more, and often, would never come to an end.
            futile = 1 if part.size >= most + enough else futile + 1
            most = max(most, part.size)
            if futile == limits.futile:
                tried = f" ({futile} attempts in a row brought next to nothing)" if futile > 1 else ""
                raise DownloadError(f"{error}{tried}") from None
            if attempt == limits.attempts:
                raise DownloadError(f"{error} ({attempt} attempts)") from None
            _pause(url, error, futile, limits, deadline)
    raise AssertionError("no attempt was made")


def _pause(url: str, error: Cut, futile: int, limits: Limits, deadline: float) -> None:
    seconds = min(limits.pause * 2 ** (futile - 1), limits.longest_pause)
    if error.wait is not None:
        seconds = max(seconds, error.wait)
        if seconds > limits.longest_pause:
            raise DownloadError(
                f"{error}; to be asked again in {seconds:,.0f} s, where {limits.longest_pause:g} s are waited"
            )
    if time.monotonic() + seconds >= deadline:
        raise DownloadError(f"{error}; not done within the {limits.seconds:g} s that an address gets")
    log(f"{url}: {error}; trying again")
    time.sleep(seconds)


def _attempt(url: str, part: Part, wanted: Wanted, limits: Limits, deadline: float) -> Received:
    """Ask once for what `part` lacks."""
    headers = {"User-Agent": "bigbird-dna", "Accept-Encoding": "identity"}
    have, version = part.resume(url, any_server=wanted.any_server)
    if have:
        headers["Range"] = f"bytes={have}-"
    if version.mark is not None:
        headers["If-Range"] = version.mark
    with ask(url, headers, limits, deadline) as (answer, chunks):
        if have and answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            if is_complete(answer.headers, have, version):
                return Received(resumed=True, ends=True)
            part.clear()
            raise Cut(f"the {have:,} bytes that were there are not of this file")
        try:
            body = read_answer(answer, have, version, wanted.file)
        except OtherVersion:
            part.clear()
            raise
        _check_size(part, body, wanted)
        part.begin(body.start, url, body.version)
        left = None if body.total is None else (body.total - body.start) // CHUNK
        for _ in progress(_receive(answer, chunks, part, body, wanted), wanted.file, left):
            pass
    if body.total is not None and part.size < body.total:
        raise Cut(f"connection lost after {part.size:,} of {body.total:,} bytes")
    return Received(body.start > 0, body.ends)


def _check_size(part: Part, body: Body, wanted: Wanted) -> None:
    if body.total is not None and body.total > _most(wanted):
        raise _too_large(f"{body.total:,} bytes", wanted)
    check_room(part.path, (wanted.size if body.total is None else body.total) - part.size)


def _most(wanted: Wanted) -> int:
    return _OVERSIZE * wanted.size + _SLACK


def _too_large(found: str, wanted: Wanted) -> DownloadError:
    return DownloadError(f"it sends {found}, where about {wanted.size / 1e6:g} MB are expected: not the file")


def _receive(
    answer: HttpResponse, chunks: Iterator[bytes], part: Part, body: Body, wanted: Wanted
) -> Iterator[None]:
    """Write what comes, and give a sign for each `CHUNK` bytes."""
    head, shown = b"", body.start
    most = _most(wanted) if body.total is None else body.total
    for chunk in chunks:
        if part.size < _HEAD and part.size == len(head):
            head += chunk[: _HEAD - len(head)]
            if is_page(head):
                part.clear()
                host = answer.url.split("/")[2]
                raise DownloadError(
                    f"{host} sent a web page instead of the file: the network here wants a login (a captive "
                    "portal), or the file has moved"
                )
        if part.size + len(chunk) > most:
            part.clear()
            raise _too_large(f"more than {most:,} bytes", wanted)
        part.write(chunk)
        while part.size >= shown + CHUNK:
            shown += CHUNK
            yield
