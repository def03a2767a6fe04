"""Public files by key, as `resources/sources.yaml` describes them."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from bigbird_dna.config.safe_yaml import plain, read_yaml, shortened, shown
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.sources.http_response import find_fault

_SCHEMES = ("https", "http", "ftp")
_ALGORITHMS = ("md5", "sha1", "sha256", "sha512")
_MOST_MEGABYTES = 1e9
_MOST_BYTES = 1 << 18  # of the list; YAML is read at a quarter of a megabyte a second
_KEY = "(key)"  # no field of an entry

T = TypeVar("T")


def _line(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError("no text of one line")
    return text


def _file(name: str) -> str:
    if name.startswith(".") or Path(name).name != name:
        raise ValueError("not a name of a file")
    return name


def check_addresses(urls: object) -> object:
    """A list of addresses of the web or FTP, in ASCII without spaces; `ValueError` names another value."""
    if not isinstance(urls, tuple) or not urls:
        raise ValueError("no list of addresses")
    for url in urls:
        if not _is_address(url):
            raise ValueError(f"{shown(url)} is not an address of the web or FTP, in ASCII without spaces")
    return urls


def _is_address(url: object) -> bool:
    if not isinstance(url, str) or not re.fullmatch(r"[!-~]+", url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _checksum(text: str | None) -> str | None:
    algorithm, _, digest = (text or "").partition(":")
    known = algorithm in _ALGORITHMS
    if text is not None and not (
        known and re.fullmatch(f"[0-9a-f]{{{2 * hashlib.new(algorithm).digest_size}}}", digest)
    ):
        raise ValueError(f"not {' or '.join(_ALGORITHMS)} with a colon and small letters")
    return text


Line = Annotated[str, AfterValidator(_line)]


@dataclass(frozen=True)
class Source:
    """One entry of `sources.yaml`."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    key: Annotated[str, Field(alias=_KEY)]
    file: Annotated[Line, AfterValidator(_file)]
    assembly: Line
    urls: Annotated[tuple[str, ...], BeforeValidator(check_addresses)]
    checksum: Annotated[str | None, AfterValidator(_checksum)]  # "md5:…" or "sha256:…"
    megabytes: Annotated[float, Field(strict=True, gt=0, lt=_MOST_MEGABYTES)]
    licence: Line
    citation: Line
    # Of a liftOver chain: the assembly it starts from.
    from_assembly: Annotated[Line | None, Field(alias="from")] = None

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
    where = {key: f"{path}: source {shown(key)}" for key in entries}
    return {key: check_entry(Source, entry, where[key], {_KEY: key}) for key, entry in entries.items()}


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


def check_entry(kind: type[T], entry: object, where: str, more: Mapping[str, str] = {}) -> T:
    """An entry with what its list says `more` of it; `ConfigError` names the field that is wrong."""
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: is not a mapping of fields")
    try:
        return TypeAdapter(kind).validate_python({**plain(entry, where), **more})
    except ValidationError as error:
        fault = error.errors()[0]
    key = ".".join(str(part) for part in fault["loc"])
    match fault["type"]:
        case "missing":
            raise ConfigError(f"{where}: no field {key!r}")
        case "extra_forbidden" | "unexpected_keyword_argument":
            raise ConfigError(f"{where}: unknown field {shown(key)}")
    message = shortened(fault["msg"].removeprefix("Value error, "), 300)
    raise ConfigError(f"{where}: {key}: {message} (got {shown(fault['input'])})")
