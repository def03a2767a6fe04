"""Files of the user's own that a configuration names."""

from pathlib import Path

from bigbird_dna.config import DEEPSEA, SIMULATED, Config
from bigbird_dna.errors import ConfigError


def locate(name: str, local_data: str | None) -> Path:
    """Where a file or folder is that a configuration names.

    Under `local_data` if it is there, else as it is named, from the working directory; whether
    it exists there is for the caller to see. An absolute path stands for itself.
    """
    local = Path(local_data or ".") / name
    return local if local.exists() else Path(name)


def where_looked(local_data: str | None) -> str:
    """Where `locate` looks, for a message."""
    return "here" if local_data is None else f"in {local_data} or here"


def check_chromatin_files(config: Config) -> None:
    """Refuse tracks, variants or a blacklist that are nowhere, before a run begins.

    Raises
    ------
    ConfigError
        A name of the section `chromatin` is no file and, of tracks, no folder.
    """
    chromatin = config.chromatin
    if chromatin.tracks is None:
        return
    named = {"variants": chromatin.variants, "blacklist": chromatin.blacklist}
    if chromatin.tracks not in (SIMULATED, DEEPSEA):
        named["tracks"] = chromatin.tracks
    for key, name in named.items():
        if name is None:
            continue
        path = locate(name, config.local_data)
        if not (path.is_file() or (key == "tracks" and path.is_dir())):
            kind = "file or folder" if key == "tracks" else "file"
            where = where_looked(config.local_data)
            raise ConfigError(f"chromatin.{key}: {name!r} is no {kind} {where}")
