"""Download public files: resumed where they were interrupted, from mirrors in turn, checked at the end."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import requests

from bigbird_dna.console import log, progress
from bigbird_dna.disk.atomic import atomic_path, check_writable, checksum, link_target
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.sources import find_source

ATTEMPTS = 5
TIMEOUT = 60.0  # seconds without a byte
PAUSE = 2.0  # seconds before the second attempt, doubled for each further one

_CHUNK = 1 << 14  # received bytes of a smaller chunk are lost with the connection
_TEMPORARY_STATUS = (408, 425, 429, 500, 502, 503, 504)
_GZIP_SUFFIXES = (".gz", ".tgz", ".bgz")
_PAGE_STARTS = (b"<!doctype html", b"<html", b"<head", b"<?xml")


def fetch(key: str, output: Path, data_dir: Path | None = None) -> None:
    """Write the file of a source to `output`, from `data_dir` if it is there, else by `download`.

    `data_dir` is searched recursively for the file's name, or that of its gzip, which is unpacked; files
    closer to the top take precedence.
    """
    source = find_source(key)
    if output.exists() and not output.is_file():
        raise UsageError(f"{output}: must be a regular file or not exist")

    output = link_target(output)
    check_writable(output)
    if data_dir is not None:
        if not data_dir.is_dir():
            raise UsageError(f"data_dir: {data_dir} is not a directory")

        names = source.file, f"{source.file}.gz"
        paths = [path for name in names for path in data_dir.rglob(name)]
        if paths:
            local = min(paths, key=lambda path: (len(path.parts), path))
            with atomic_path(output) as temporary:
                # `open_bytes` would also unpack a file that is published as gzip.
                unpack = local.name == names[1]
                with (
                    open_bytes(local) if unpack else local.open("rb") as content,
                    temporary.open("wb") as file,
                ):
                    shutil.copyfileobj(content, file)

                if fault := find_fault(temporary, source.file, source.checksum):
                    raise DataError(f"{local} (source {key}): {fault}")

            log(f"{output}: {key} from {local}")
            return

        log(f"{key}: {source.file} not found in {data_dir}; downloading it")

    try:
        download(source.urls, output, source.checksum, source.file)
    except DataError as error:
        raise DataError(
            f"source {key}: {error}; or put {source.file} into a directory and give that as --local-data"
            " (in a configuration: data_dir)"
        ) from None

    log(f"{output}: {key}; license: {source.license}; cite {source.citation}")


def download(
    urls: Sequence[str], output: Path, checksum: str | None = None, name: str = ""
) -> None:
    """Download the file published as `name` (by default, `output`'s) from the first address that works.

    Received bytes are kept in `output`.part until the file is complete, and the next call requests the rest
    (HTTP Range). `checksum` is "md5:…", "sha256:…" or None; without one, gzip files are read to their end,
    and plain text is never resumed, because nothing would show that the file has changed on the server.
    `DataError` gives the reason for each address.
    """
    name = name or output.name
    part = output.with_name(f"{output.name}.part")
    output.parent.mkdir(parents=True, exist_ok=True)
    resumable = checksum is not None or name.endswith(_GZIP_SUFFIXES)
    reasons = []
    for url in urls:
        log(f"{url}: downloading")
        if not resumable:
            part.unlink(missing_ok=True)

        resumed = part.exists()
        fault = _receive(url, part)
        if fault is None:
            fault = find_fault(part, name, checksum)
            if fault and resumed:  # the first bytes may be those of another version
                part.unlink()
                fault = _receive(url, part) or find_fault(part, name, checksum)

            if fault:
                part.unlink(missing_ok=True)

        if fault is None:
            part.replace(output)
            return

        log(f"{url}: {fault}")
        reasons.append(f"{url}: {fault}")

    hint = ""
    if resumable and part.exists():
        hint = f"; {part} has the first {part.stat().st_size:,} bytes, and the next call downloads the rest"

    raise DataError(f"{output}: cannot be downloaded ({'; '.join(reasons)}){hint}")


def _receive(url: str, part: Path) -> str | None:
    """Receive the missing bytes of `part`, again while the connection breaks; return the reason of a failure."""
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            log(f"{url}: {reason}; trying again")
            time.sleep(PAUSE * 2 ** (attempt - 1))

        size = part.stat().st_size if part.exists() else 0
        headers = {"User-Agent": "bigbird-dna", "Accept-Encoding": "identity"}
        if size:
            headers["Range"] = f"bytes={size}-"

        try:
            with requests.get(
                url, headers=headers, stream=True, timeout=TIMEOUT
            ) as response:
                status = response.status_code
                if size and status == 416:
                    # Complete already, or longer than the file: the checksum tells.
                    return None

                if status >= 400:
                    reason = f"HTTP {status} {response.reason}"
                    if status in _TEMPORARY_STATUS:
                        continue

                    return reason

                length = int(response.headers.get("Content-Length", 0))
                chunks = progress(
                    response.iter_content(_CHUNK), part.stem, length // _CHUNK or None
                )
                with part.open("ab" if size and status == 206 else "wb") as file:
                    for chunk in chunks:
                        file.write(chunk)

                return None
        except requests.RequestException as error:
            reason = f"no server, or the connection was lost ({type(error).__name__})"

    return reason


def find_fault(path: Path, name: str, published: str | None) -> str | None:
    """Return what is wrong with a copy of a file that was published as `name`; None for a good copy.

    `published` is its checksum, "md5:…". Without one, a gzip file is read to its end, which shows whether it
    is complete; plain text shows nothing.
    """
    with path.open("rb") as stream:
        start = stream.read(512)

    if start.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_PAGE_STARTS):
        return "a web page instead of the file: the network requires a login, or the file has moved"

    if published is not None:
        algorithm, expected = published.split(":")
        digest = checksum(path, algorithm)
        if digest == expected:
            return None

        return f"its {algorithm} is {digest}, expected {expected}"

    if not start:
        return "the file is empty"

    if name.endswith(_GZIP_SUFFIXES):
        if not start.startswith(b"\x1f\x8b"):
            return "the file is not gzip"

        try:
            with open_bytes(path) as unpacked:
                while unpacked.read(1 << 20):
                    pass
        except DataError as error:
            return str(error).removeprefix(f"{path}: ")

    return None
