"""Read lists of public files and of published models: YAML mappings of keys to entries."""

import re
from pathlib import Path
from typing import Any

from bigbird_dna.config.safe_yaml import read_yaml, shown
from bigbird_dna.errors import ConfigError


def check_addresses(urls: tuple[str, ...]) -> tuple[str, ...]:
    """Check a list of web addresses, in ASCII without spaces; `ValueError` names an invalid one."""
    if not urls:
        raise ValueError("must be a list of addresses")
    for url in urls:
        if not re.fullmatch("https?://[!-~]+", url):
            raise ValueError(
                f"{shown(url)} is not a web address in ASCII without spaces"
            )
    return urls


def read_entries(path: Path, what: str) -> dict[str, Any]:
    """Read the entries by key of a YAML list of `what`, such as "sources"."""
    try:
        entries = read_yaml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: the file is not UTF-8 text") from None
    if entries is None:  # empty, or only comments
        return {}
    if not isinstance(entries, dict):
        raise ConfigError(f"{path}: must be a mapping of keys to {what}")
    return entries
