"""How a public file gets here whole.

A directory of local files is looked in first; a download goes on where it was cut, tries mirrors in turn, and
is checked before it gets its name.
"""

import shutil
import time
from pathlib import Path

from bigbird_dna.console import log
from bigbird_dna.disk.atomic import atomic_path, check_writable
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.sources.catalogue import Source
from bigbird_dna.genome.sources.download import Wanted, download
from bigbird_dna.genome.sources.http_request import LIMITS, DownloadError, Limits
from bigbird_dna.genome.sources.http_response import shows_its_end
from bigbird_dna.genome.sources.inputs import find_source, is_file
from bigbird_dna.genome.sources.partial_file import Part, check_room, open_part


def fetch(key: str, output: Path, local_data: Path | None = None, limits: Limits = LIMITS) -> None:
    """Put the file of a source at `output`, from `local_data` where it is there, else from its addresses.

    `local_data` is searched with its subdirectories for the file's name; a file nearer to the top comes
    first. A download that is cut leaves `output`.fetch.part and goes on from there at the next call.

    Raises
    ------
    UsageError
        Unknown key, no directory `local_data`, or an output that can't be written.
    DataError
        A local file or every download fails its checksum or is cut, no address can be reached, the disk is
        full, or another process is fetching the same output.
    """
    source = find_source(key)
    local = _local_file(source, local_data)
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
        raise UsageError(f"local_data: {directory} is not a directory")
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
        "configuration: local_data)"
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
