"""How a public file gets here whole.

A directory of local files is looked in first; a download goes on where it was cut, tries mirrors in turn, and
is checked before it gets its name.

One file from one address, going on where an earlier attempt was cut.
"""

import shutil
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.console import log, progress
from bigbird_dna.disk.atomic import atomic_path, check_writable
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.sources.catalogue import Source
from bigbird_dna.genome.sources.http_request import (
    CHUNK,
    LIMITS,
    Cut,
    DownloadError,
    HttpResponse,
    Limits,
    ask,
)
from bigbird_dna.genome.sources.http_response import (
    Body,
    OtherVersion,
    is_complete,
    is_page,
    read_answer,
    shows_its_end,
)
from bigbird_dna.genome.sources.inputs import find_source, is_file
from bigbird_dna.genome.sources.partial_file import Part, check_room, open_part

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


def fetch(key: str, output: Path, data_dir: Path | None = None, limits: Limits = LIMITS) -> None:
    """Put the file of a source at `output`, from `data_dir` where it is there, else from its addresses.

    `data_dir` is searched with its subdirectories for the file's name; a file nearer to the top comes
    first. A download that is cut leaves `output`.fetch.part and goes on from there at the next call.

    Raises
    ------
    UsageError
        Unknown key, no directory `data_dir`, or an output that can't be written.
    DataError
        A local file or every download fails its checksum or is cut, no address can be reached, the disk is
        full, or another process is fetching the same output.
    """
    source = find_source(key)
    local = _local_file(source, data_dir)
    if output.exists() and not output.is_file():
        raise UsageError(f"{output}: is not a file that can be replaced")
    check_writable(output)
    if local is not None:
        _copy(source, local, output)
    else:
        _download(source, output, limits)


def _local_file(source: Source, directory: Path | None) -> Path | None:
    if directory is None:
        return None
    if not directory.is_dir():
        raise UsageError(f"data_dir: {directory} is not a directory")
    found = sorted(
        (path for path in directory.rglob(source.file) if is_file(path)),
        key=lambda path: (len(path.parts), path),
    )
    if not found:
        log(f"{source.key}: no {source.file} in {directory}, downloading")
        return None
    return found[0]


def _copy(source: Source, local: Path, output: Path) -> None:
    if output.exists() and output.samefile(local):
        _check_copy(source, local, local)
        return
    try:
        check_room(output, local.stat().st_size)
        with atomic_path(output) as temporary:
            shutil.copyfile(local, temporary)
            _check_copy(source, temporary, local)
    except OSError as error:
        raise DataError(f"{local}: can't be copied: {error.strerror}") from None
    log(f"{output}: {source.key} from {local}{_unverified(source)}")


def _check_copy(source: Source, copy: Path, local: Path) -> None:
    fault = source.fault(copy)
    if fault is not None:
        raise DataError(f"{local} (source {source.key}): {fault}")


def _unverified(source: Source) -> str:
    if source.checksum is not None or shows_its_end(source.file):
        return ""
    return "; no checksum is published, and plain text doesn't show whether it is whole"


def _download(source: Source, output: Path, limits: Limits) -> None:
    instead = (
        f"to do without, put {source.file} into a directory and name that as --local-data (in a "
        "configuration: data_dir)"
    )
    with open_part(output, f"{source.key} {source.checksum}") as part:
        download_any(source, part, limits, f"source {source.key}", instead)
        part.finish(output)
    log(f"{output}: {source.key}; licence: {source.licence}; cite {source.citation}")


def download_any(source: Source, part: Part, limits: Limits, what: str, instead: str = "") -> None:
    """Fetch a source into its part, whole and checked, from the first of its addresses that gives it.

    Parameters
    ----------
    what, instead
        What a message calls it; what can be done without a download, as the end of the message.

    Raises
    ------
    DataError
        No address gives it; the part then keeps what the next call goes on from. Or the disk is full.
    """
    failures = []
    for number, url in enumerate(source.urls, start=1):
        log(f"{source.key}: {url} ({source.megabytes:g} MB)")
        try:
            _download_from(source, url, part, limits)
        except DownloadError as error:
            log(f"{url}: {error}; addresses left to try: {len(source.urls) - number}")
            failures.append(f"{url}: {error}")
        else:
            return
    kept = f"; {part.path} keeps the {part.size:,} bytes that came, for the next fetch" if part.size else ""
    raise DataError(
        f"{what} can't be downloaded ({'; '.join(failures)}){kept}{'; ' if instead else ''}{instead}"
    )


def _download_from(source: Source, url: str, part: Part, limits: Limits) -> None:
    """Fetch from one address; with the bytes of an earlier, cut download where there are any."""
    wanted = Wanted(source.file, source.size, any_server=source.checksum is not None)
    deadline = time.monotonic() + limits.seconds
    received = download(url, part, wanted, limits, deadline)
    fault = source.fault(part.path)
    if fault is not None and received.resumed:
        # The pieces may come from two versions of the file: once more in one piece.
        part.clear()
        received = download(url, part, wanted, limits, deadline)
        fault = source.fault(part.path)
    if fault is None and not received.ends and source.checksum is None and not shows_its_end(source.file):
        fault = (
            "it may be cut: the server doesn't say how long it is, no checksum is published, and it is plain"
        )
    if fault is not None:
        part.clear()
        raise DownloadError(fault)
