"""Fetch a public file completely.

A directory of local files is searched first. A download resumes where it was interrupted, tries mirrors in
turn, and is checked before it is renamed to the output.
"""

import shutil
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

from bigbird_dna.console import log, progress
from bigbird_dna.disk.atomic import atomic_path, check_writable, link_target
from bigbird_dna.disk.compression import open_bytes
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

_OVERSIZE = 4  # times the expected size, plus
_SLACK = 1 << 20  # bytes, is the maximum size
_HEAD = 512  # bytes checked for a web page


def download(
    url: str,
    part: Part,
    source: Source,
    limits: Limits = LIMITS,
    deadline: float | None = None,
) -> tuple[bool, bool]:
    """Fetch a source from `url` into `part`; return whether it was resumed, and whether its end is certain.

    An interrupted connection leaves the received bytes in `part`. The next attempt or call requests the rest
    (HTTP Range) of the same version, by the server's version mark, or of any version if the checksum is
    known. `DownloadError` if attempts failed or time is over; `DataError` if the disk is full.
    """
    deadline = time.monotonic() + limits.seconds if deadline is None else deadline
    enough = round(limits.rate * limits.window)
    futile, most = 0, part.size
    for attempt in range(1, limits.attempts + 1):
        try:
            return _attempt(url, part, source, limits, deadline)
        except Cut as error:
            # Many attempts with few bytes each would never end.
            futile = 1 if part.size >= most + enough else futile + 1
            most = max(most, part.size)
            if futile == limits.futile:
                tried = (
                    f" ({futile} attempts in a row received almost nothing)"
                    if futile > 1
                    else ""
                )
                raise DownloadError(f"{error}{tried}") from None
            if attempt == limits.attempts:
                raise DownloadError(f"{error} ({attempt} attempts)") from None
            _pause(url, error, futile, limits, deadline)
    raise AssertionError("no attempt was made")


def _pause(url: str, error: Cut, futile: int, limits: Limits, deadline: float) -> None:
    seconds = max(
        min(limits.pause * 2 ** (futile - 1), limits.longest_pause), error.wait or 0
    )
    if seconds > limits.longest_pause:
        raise DownloadError(
            f"{error}; the server asks to wait {seconds:,.0f} s, the limit is {limits.longest_pause:g} s"
        )
    if time.monotonic() + seconds >= deadline:
        raise DownloadError(
            f"{error}; not complete within the limit of {limits.seconds:g} s per address"
        )
    log(f"{url}: {error}; trying again")
    time.sleep(seconds)


def _attempt(
    url: str, part: Part, source: Source, limits: Limits, deadline: float
) -> tuple[bool, bool]:
    """Request the missing bytes of `part` once."""
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
            raise Cut(
                f"the {have:,} bytes from an earlier download belong to another file"
            )
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
        received = _receive(
            answer, chunks, part, body.start, most if total is None else total, source
        )
        for _ in progress(received, source.file, left):
            pass
    if total is not None and part.size < total:
        raise Cut(f"connection lost after {part.size:,} of {total:,} bytes")
    return body.start > 0, body.ends


def _too_large(found: str, source: Source) -> DownloadError:
    return DownloadError(
        f"wrong file: the server sends {found}, expected about {source.size / 1e6:g} MB"
    )


def _receive(
    answer: HttpResponse,
    chunks: Iterator[bytes],
    part: Part,
    shown: int,
    most: int,
    source: Source,
) -> Iterator[None]:
    """Write the received chunks, and yield once per `CHUNK` bytes beyond the first `shown`."""
    head = b""
    for chunk in chunks:
        if part.size < _HEAD and part.size == len(head):
            head += chunk[: _HEAD - len(head)]
            if is_page(head):
                part.clear()
                host = answer.url.split("/")[2]
                raise DownloadError(
                    f"{host} sent a web page instead of the file: the network requires a login (a captive "
                    "portal), or the file has moved"
                )
        if part.size + len(chunk) > most:
            part.clear()
            raise _too_large(f"more than {most:,} bytes", source)
        part.write(chunk)
        while part.size >= shown + CHUNK:
            shown += CHUNK
            yield


def fetch(
    key: str, output: Path, data_dir: Path | None = None, limits: Limits = LIMITS
) -> None:
    """Write the file of a source to `output`, from `data_dir` if found, else by download.

    `data_dir` is searched recursively for the file's name, or that of its gzip, which is unpacked; files
    closer to the top take precedence. An interrupted download leaves `output`.fetch.part, and the next call
    resumes it.
    """
    source = find_source(key)
    local = _local_file(source, data_dir)
    if output.exists() and not output.is_file():
        raise UsageError(f"{output}: must be a regular file or not exist")
    output = link_target(output)
    check_writable(output)
    if local is not None:
        _copy(source, local, output)
        return
    instead = (
        f"alternatively, put {source.file} into a directory and give that as --local-data (in a "
        "configuration: data_dir)"
    )
    with open_part(output, f"{source.key} {source.checksum}") as part:
        download_any(source, part, limits, f"source {source.key}", instead)
        part.finish(output)
    log(f"{output}: {source.key}; license: {source.license}; cite {source.citation}")


def _local_file(source: Source, directory: Path | None) -> Path | None:
    if directory is None:
        return None
    if not directory.is_dir():
        raise UsageError(f"data_dir: {directory} is not a directory")
    names = (source.file, f"{source.file}.gz")
    found = sorted(
        (path for name in names for path in directory.rglob(name) if is_file(path)),
        key=lambda path: (len(path.parts), path),
    )
    if not found:
        log(f"{source.key}: {source.file} not found in {directory}; downloading it")
        return None
    return found[0]


def _copy(source: Source, local: Path, output: Path) -> None:
    if output.exists() and output.samefile(local):
        _check_copy(source, local, local)
        return
    try:
        check_room(output, local.stat().st_size)
        with atomic_path(output) as temporary:
            if local.name == f"{source.file}.gz":
                with open_bytes(local) as packed, temporary.open("wb") as file:
                    shutil.copyfileobj(packed, file)
            else:
                shutil.copyfile(local, temporary)
            _check_copy(source, temporary, local)
    except OSError as error:
        raise DataError(f"{local}: cannot copy the file: {error.strerror}") from None
    known = source.checksum is not None or shows_its_end(source.file)
    unverified = "; completeness is unverified: plain text, and no published checksum"
    log(f"{output}: {source.key} from {local}{'' if known else unverified}")


def _check_copy(source: Source, copy: Path, local: Path) -> None:
    if fault := source.fault(copy):
        raise DataError(f"{local} (source {source.key}): {fault}")


def download_any(
    source: Source, part: Part, limits: Limits, what: str, instead: str = ""
) -> None:
    """Download a source completely and checked into its part, from the first address that works.

    `DataError` calls the source `what` and ends with the alternative `instead`; the part keeps the bytes with
    which the next call resumes.
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
    kept = (
        f"; {part.path} keeps the {part.size:,} received bytes for the next fetch"
        if part.size
        else ""
    )
    raise DataError(
        f"cannot download {what} ({'; '.join(failures)}){kept}{'; ' if instead else ''}{instead}"
    )


def _download_from(source: Source, url: str, part: Part, limits: Limits) -> None:
    """Download from one address, resuming an earlier interrupted download if possible."""
    deadline = time.monotonic() + limits.seconds
    resumed, ends = download(url, part, source, limits, deadline)
    fault = source.fault(part.path)
    if fault is not None and resumed:
        # The bytes may come from two versions of the file: download it again from the start.
        part.clear()
        _, ends = download(url, part, source, limits, deadline)
        fault = source.fault(part.path)
    if (
        fault is None
        and not ends
        and source.checksum is None
        and not shows_its_end(source.file)
    ):
        fault = "it may be truncated: plain text without a size from the server or a published checksum"
    if fault is not None:
        part.clear()
        raise DownloadError(fault)
