"""The cache of this user: files that can be made again."""

import os
from pathlib import Path

import platformdirs


def cache_directory() -> Path:
    """Return the cache directory: $BIGBIRD_DNA_CACHE, else `bigbird-dna` in the user's cache directory."""
    if directory := os.environ.get("BIGBIRD_DNA_CACHE"):
        return Path(directory)
    return Path(platformdirs.user_cache_dir("bigbird-dna", appauthor=False))
