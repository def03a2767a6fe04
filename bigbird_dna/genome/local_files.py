"""Files of the user's own that a configuration names."""

from pathlib import Path


def locate(name: str, local_data: str | None) -> Path:
    """Where a file or folder is that a configuration names.

    Under `local_data` if it is there, else as it is named, from the working directory; whether
    it exists there is for the caller to see. An absolute path stands for itself.
    """
    local = Path(local_data or ".") / name
    return local if local.exists() else Path(name)
