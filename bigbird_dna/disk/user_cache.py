"""The cache of this user: files that can be made again."""

import os
from contextlib import suppress
from pathlib import Path

import platformdirs

from bigbird_dna.disk.atomic import scratch_directory
from bigbird_dna.errors import UsageError


def cache_directory() -> Path:
    """Return the cache directory: $BIGBIRD_DNA_CACHE, else `bigbird-dna` in the user's cache directory."""
    if named := os.environ.get("BIGBIRD_DNA_CACHE"):
        return Path(named)
    return Path(platformdirs.user_cache_dir("bigbird-dna", appauthor=False))


class UserCache:
    """Small files in a directory of the cache; if it is not writable, nothing is stored."""

    def __init__(self, name: str) -> None:
        self._name = name

    def get(self, key: str) -> bytes | None:
        """Return the content stored under a name, or None."""
        with suppress(OSError):
            return (cache_directory() / self._name / key).read_bytes()
        return None

    def put(self, key: str, content: bytes) -> None:
        """Store `content` under a name, atomically."""
        directory = cache_directory() / self._name
        with suppress(OSError, UsageError):
            directory.mkdir(parents=True, exist_ok=True)
            with scratch_directory(directory) as scratch:
                (scratch / key).write_bytes(content)
                (scratch / key).replace(directory / key)
