"""Public files by key, as `resources/sources.yaml` describes them."""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bigbird_dna.config.safe_yaml import read_yaml, shown
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.sources.http_response import find_fault

_SCHEMES = ("https", "http", "ftp")
_REQUIRED = frozenset({"file", "assembly", "urls", "checksum", "megabytes", "licence", "citation"})
_ALGORITHMS = ("md5", "sha1", "sha256", "sha512")
_MOST_MEGABYTES = 1e9
_MOST_BYTES = 1 << 18  # of the list; YAML is read at a quarter of a megabyte a second


@dataclass(frozen=True)
class Source:
    """One entry of `sources.yaml`."""

    key: str
    file: str
    assembly: str
    urls: tuple[str, ...]
    checksum: str | None  # "md5:…" or "sha256:…"
    megabytes: float
    licence: str
    citation: str
    from_assembly: str | None = None  # of a liftOver chain: the assembly it starts from

    @property
    def size(self) -> int:
        """Bytes, about."""
        return round(self.megabytes * 1e6)

    def fault(self, path: Path) -> str | None:
        """What is wrong with a copy of the file; `None` for a good one."""
        return find_fault(path, self.file, self.checksum)


@cache
def load_sources() -> dict[str, Source]:
    """All entries of `sources.yaml` by key."""
    with as_file(files("bigbird_dna.resources").joinpath("sources.yaml")) as path:
        return read_sources(path)


def read_sources(path: Path) -> dict[str, Source]:
    """Read a file of sources; `ConfigError` names the entry and the field."""
    entries = read_entries(path, "sources")
    return {key: _source(key, entry, f"{path}: source {shown(key)}") for key, entry in entries.items()}


def read_entries(path: Path, what: str, most: int = _MOST_BYTES) -> dict[str, Any]:
    """The entries by key of a list of `what`, such as "sources": a YAML file of at most `most` bytes."""
    try:
        with path.open("rb") as stream:
            text = stream.read(most + 1)
        if len(text) > most:
            raise ConfigError(f"{path}: a list of {what} has at most {most:,} bytes")
        entries = read_yaml(text.decode(), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not a text file in UTF-8") from None
    if entries is None:  # nothing, or comments alone
        return {}
    if not isinstance(entries, dict):
        raise ConfigError(f"{path}: is not a mapping of keys to {what}")
    return entries


def _source(key: str, entry: object, where: str) -> Source:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: is not a mapping of fields")
    for name in sorted(_REQUIRED - entry.keys()):
        raise ConfigError(f"{where}: no field {name!r}")
    for name in sorted(entry.keys() - _REQUIRED - {"from"}):
        raise ConfigError(f"{where}: unknown field {shown(name)}")
    for name in ("file", "assembly", "licence", "citation", "from"):
        value = entry.get(name, "none")
        if not (isinstance(value, str) and value and value.isprintable()):
            raise ConfigError(f"{where}: {name}: no text of one line")
    file = entry["file"]
    if file.startswith(".") or Path(file).name != file:
        raise ConfigError(f"{where}: file: {shown(file)} is not a name of a file")
    return Source(
        key,
        file,
        entry["assembly"],
        _urls(entry["urls"], f"{where}: urls"),
        _checksum(entry["checksum"], f"{where}: checksum"),
        _megabytes(entry["megabytes"], f"{where}: megabytes"),
        entry["licence"],
        entry["citation"],
        entry.get("from"),
    )


def _urls(urls: object, where: str) -> tuple[str, ...]:
    if not isinstance(urls, list) or not urls:
        raise ConfigError(f"{where}: no list of addresses")
    for url in urls:
        if not is_address(url):
            raise ConfigError(
                f"{where}: {shown(url)} is not an address of the web or FTP, in ASCII without spaces"
            )
    return tuple(urls)


def is_address(url: object) -> bool:
    """Whether a value is an address of the web or FTP, in ASCII without spaces."""
    if not isinstance(url, str) or not re.fullmatch(r"[!-~]+", url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _checksum(text: object, where: str) -> str | None:
    if text is None:
        return None
    if isinstance(text, str):
        algorithm, _, digest = text.partition(":")
        if algorithm in _ALGORITHMS:
            digits = 2 * hashlib.new(algorithm).digest_size
            if re.fullmatch(f"[0-9a-f]{{{digits}}}", digest):
                return text
    raise ConfigError(
        f"{where}: {shown(text)} is not {' or '.join(_ALGORITHMS)} with a colon and small letters"
    )


def _megabytes(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MOST_MEGABYTES:
        raise ConfigError(f"{where}: {shown(value)} is not a number above 0")
    return value
