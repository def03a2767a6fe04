"""Download public files: resumed where they were interrupted, from mirrors in turn, checked at the end."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import requests

from bigbird_dna.console import log, progress
from bigbird_dna.disk.atomic import atomic_path, check_writable, checksum, link_target
from bigbird_dna.disk.compression import open_bytes
from bigbird_dna.errors import DataError, UsageError, error_text
from bigbird_dna.genome.sources import Source, find_source

ATTEMPTS = 5
TIMEOUT = 60.0  # seconds without a byte
PAUSE = 2.0  # seconds before the second attempt, doubled for each further one

_CHUNK = 1 << 14  # received bytes of a smaller chunk are lost with the connection
_TEMPORARY_STATUS = (408, 425, 429, 500, 502, 503, 504)
_GZIP_SUFFIXES = (".gz", ".tgz", ".bgz")
_TAR_END = bytes(1024)
_PAGE_STARTS = (b"<!doctype html", b"<html", b"<head", b"<?xml")


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
        try:
            fault = _receive(url, part)
            if fault is None:
                fault = find_fault(part, name, checksum)
                if fault and resumed:  # the first bytes may be those of another version
                    part.unlink()
                    fault = _receive(url, part) or find_fault(part, name, checksum)
                if fault:
                    part.unlink(missing_ok=True)
        except OSError as error:
            raise DataError(
                f"{part}: cannot write the file: {error.strerror}"
            ) from None
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
    for attempt in range(1, ATTEMPTS + 1):
        size = part.stat().st_size if part.exists() else 0
        headers = {"User-Agent": "bigbird-dna", "Accept-Encoding": "identity"}
        if size:
            headers["Range"] = f"bytes={size}-"
        try:
            with requests.get(
                url, headers=headers, stream=True, timeout=TIMEOUT
            ) as response:
                if size and response.status_code == 416:
                    # Complete already, or longer than the file: the checksum tells.
                    return None
                response.raise_for_status()
                mode = "ab" if size and response.status_code == 206 else "wb"
                length = response.headers.get("Content-Length", "")
                chunks = int(length) // _CHUNK if length.isdigit() else None
                received = response.iter_content(_CHUNK)
                with part.open(mode) as file:
                    for chunk in progress(received, part.stem, chunks):
                        file.write(chunk)
                return None
        except requests.RequestException as error:
            if error.response is not None:
                reason = f"HTTP {error.response.status_code} {error.response.reason}"
                if error.response.status_code not in _TEMPORARY_STATUS:
                    return reason
            elif isinstance(error, requests.Timeout):
                reason = f"no answer within {TIMEOUT:g} s"
            elif isinstance(error, requests.exceptions.ChunkedEncodingError):
                reason = "connection lost"
            elif isinstance(error, requests.ConnectionError):
                reason = (
                    "cannot connect: no network, no server at this address, or an invalid TLS certificate "
                    "(set REQUESTS_CA_BUNDLE to that of a proxy that decrypts TLS)"
                )
            else:
                reason = error_text(error)
        if attempt < ATTEMPTS:
            log(f"{url}: {reason}; trying again")
            time.sleep(PAUSE * 2 ** (attempt - 1))
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
    if not name.endswith(_GZIP_SUFFIXES):
        return None
    if not start.startswith(b"\x1f\x8b"):
        return "the file is not gzip"
    end = b""
    try:
        with open_bytes(path) as unpacked:
            while chunk := unpacked.read(_CHUNK):
                end = (end + chunk)[-len(_TAR_END) :]
    except DataError as error:
        return str(error).removeprefix(f"{path}: ")
    # A gzip file may end after a member although the archive in it is incomplete.
    if name.endswith((".tar.gz", ".tgz")) and end != _TAR_END:
        return "the file is truncated: the end of the tar archive is missing"
    return None


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
    local = None if data_dir is None else _find_local(source, data_dir)
    if local is not None:
        _copy(source, local, output)
        return
    try:
        download(source.urls, output, source.checksum, source.file)
    except DataError as error:
        raise DataError(
            f"source {key}: {error}; or put {source.file} into a directory and give that as --local-data"
            " (in a configuration: data_dir)"
        ) from None
    log(f"{output}: {key}; license: {source.license}; cite {source.citation}")


def _find_local(source: Source, directory: Path) -> Path | None:
    if not directory.is_dir():
        raise UsageError(f"data_dir: {directory} is not a directory")
    names = (source.file, f"{source.file}.gz")
    paths = [p for name in names for p in directory.rglob(name) if p.is_file()]
    if not paths:
        log(f"{source.key}: {source.file} not found in {directory}; downloading it")
        return None
    return min(paths, key=lambda path: (len(path.parts), path))


def _copy(source: Source, local: Path, output: Path) -> None:
    """Copy or unpack a local file and check it; the output may be that file."""
    with atomic_path(output) as temporary:
        if local.name == f"{source.file}.gz":
            with open_bytes(local) as packed, temporary.open("wb") as file:
                shutil.copyfileobj(packed, file)
        else:
            shutil.copyfile(local, temporary)
        fault = find_fault(temporary, source.file, source.checksum)
        if fault:
            raise DataError(f"{local} (source {source.key}): {fault}")
    log(f"{output}: {source.key} from {local}")
