"""How a public file gets here whole.

A directory of local files is looked in first; a download goes on where it was cut, tries mirrors in turn, and
is checked before it gets its name.
"""

import shutil
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

from bigbird_dna.console import log, progress
from bigbird_dna.disk.atomic import atomic_path, check_writable
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.sources.http_request import (
    CHUNK,
    LIMITS,
    Cut,
    DownloadError,
    HttpResponse,
    Limits,
    ask,
)
from bigbird_dna.genome.sources.inputs import Source, find_source, is_file
from bigbird_dna.genome.sources.transfer import (
    OtherVersion,
    Part,
    check_room,
    is_complete,
    is_page,
    open_part,
    read_answer,
    shows_its_end,
)

_OVERSIZE = 4  # times what is expected, and
_SLACK = 1 << 20  # bytes, are taken at most
_HEAD = 512  # bytes that show a web page


def download(
    url: str, part: Part, source: Source, limits: Limits = LIMITS, deadline: float | None = None
) -> tuple[bool, bool]:
    """Fetch a source from `url` into `part`: are some of its bytes of an earlier request, was an end sent?

    A cut connection leaves what came in `part`, and the next attempt or call asks for the rest (HTTP Range)
    of the same version, by the server's mark of it, or of any where the checksum is known. `DownloadError`
    where attempts failed or time is over, `DataError` where the disk is full.
    """
    deadline = time.monotonic() + limits.seconds if deadline is None else deadline
    enough = round(limits.rate * limits.window)
    futile, most = 0, part.size
    for attempt in range(1, limits.attempts + 1):
        try:
            return _attempt(url, part, source, limits, deadline)
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
    seconds = max(min(limits.pause * 2 ** (futile - 1), limits.longest_pause), error.wait or 0)
    if seconds > limits.longest_pause:
        raise DownloadError(
            f"{error}; to be asked again in {seconds:,.0f} s, where {limits.longest_pause:g} s are waited"
        )
    if time.monotonic() + seconds >= deadline:
        raise DownloadError(f"{error}; not done within the {limits.seconds:g} s that an address gets")
    log(f"{url}: {error}; trying again")
    time.sleep(seconds)


def _attempt(url: str, part: Part, source: Source, limits: Limits, deadline: float) -> tuple[bool, bool]:
    """Ask once for what `part` lacks."""
    headers = {"User-Agent": "bigbird-dna", "Accept-Encoding": "identity"}
    have, version = part.resume(url, any_server=source.checksum is not None)
    if have:
        headers["Range"] = f"bytes={have}-"
    if version.mark is not None:
        headers["If-Range"] = version.mark
    with ask(url, headers, limits, deadline) as (answer, chunks):
        if have and answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            if is_complete(answer.headers, have, version):
                return True, True
            part.clear()
            raise Cut(f"the {have:,} bytes that were there are not of this file")
        try:
            body = read_answer(answer, have, version, source.file)
        except OtherVersion:
            part.clear()
            raise
        total, most = body.version.total, _OVERSIZE * source.size + _SLACK
        if total is not None and total > most:
            raise _too_large(f"{total:,} bytes", source)
        check_room(part.path, (source.size if total is None else total) - part.size)
        part.begin(body.start, url, body.version)
        left = None if total is None else (total - body.start) // CHUNK
        received = _receive(answer, chunks, part, body.start, most if total is None else total, source)
        for _ in progress(received, source.file, left):
            pass
    if total is not None and part.size < total:
        raise Cut(f"connection lost after {part.size:,} of {total:,} bytes")
    return body.start > 0, body.ends


def _too_large(found: str, source: Source) -> DownloadError:
    return DownloadError(f"it sends {found}, where about {source.size / 1e6:g} MB are expected: not the file")


def _receive(
    answer: HttpResponse, chunks: Iterator[bytes], part: Part, shown: int, most: int, source: Source
) -> Iterator[None]:
    """Write what comes, and give a sign for each `CHUNK` bytes beyond the first `shown`."""
    head = b""
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
            raise _too_large(f"more than {most:,} bytes", source)
        part.write(chunk)
        while part.size >= shown + CHUNK:
            shown += CHUNK
            yield


def fetch(key: str, output: Path, data_dir: Path | None = None, limits: Limits = LIMITS) -> None:
    """Put the file of a source at `output`, from `data_dir` where it is there, else from its addresses.

    `data_dir` is searched with its subdirectories for the file's name; a file nearer to the top comes
    first. A download that is cut leaves `output`.fetch.part and goes on from there at the next call.
    """
    source = find_source(key)
    local = _local_file(source, data_dir)
    if output.exists() and not output.is_file():
        raise UsageError(f"{output}: is not a file that can be replaced")
    check_writable(output)
    if local is not None:
        _copy(source, local, output)
        return
    instead = (
        f"to do without, put {source.file} into a directory and name that as --local-data (in a "
        "configuration: data_dir)"
    )
    with open_part(output, f"{source.key} {source.checksum}") as part:
        download_any(source, part, limits, f"source {source.key}", instead)
        part.finish(output)
    log(f"{output}: {source.key}; licence: {source.licence}; cite {source.citation}")


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
    known = source.checksum is not None or shows_its_end(source.file)
    unverified = "; no checksum is published, and plain text doesn't show whether it is whole"
    log(f"{output}: {source.key} from {local}{'' if known else unverified}")


def _check_copy(source: Source, copy: Path, local: Path) -> None:
    if fault := source.fault(copy):
        raise DataError(f"{local} (source {source.key}): {fault}")


def download_any(source: Source, part: Part, limits: Limits, what: str, instead: str = "") -> None:
    """Fetch a source into its part, whole and checked, from the first of its addresses that gives it.

    `DataError` calls it `what`, and ends with what can be done `instead`; the part keeps what the next call
    goes on from.
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
    deadline = time.monotonic() + limits.seconds
    resumed, ends = download(url, part, source, limits, deadline)
    fault = source.fault(part.path)
    if fault is not None and resumed:
        # The bytes may come from two versions of the file: once more from the first.
        part.clear()
        _, ends = download(url, part, source, limits, deadline)
        fault = source.fault(part.path)
    if fault is None and not ends and source.checksum is None and not shows_its_end(source.file):
        fault = (
            "it may be cut: the server doesn't say how long it is, no checksum is published, and it is plain"
        )
    if fault is not None:
        part.clear()
        raise DownloadError(fault)
