"""Files of the user's own that a configuration names, and the simulation's."""

from pathlib import Path

from bigbird_dna.config import DEEPSEA, SIMULATED, Config
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.aliases import open_assembly
from bigbird_dna.genome.assembly import Assembly


def locate(name: str, local_data: str | None) -> Path:
    """Where a file or folder is that a configuration names.

    Under `local_data` if it is there, else as it is named, from the working directory; whether
    it exists there is for the caller to see. An absolute path stands for itself.
    """
    local = Path(local_data or ".") / name
    return local if is_file(local) or is_directory(local) else Path(name)


def is_file(path: Path) -> bool:
    """Whether a file is there; one that can't be looked at, or can't exist, is not."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_directory(path: Path) -> bool:
    """As `is_file`, of directories."""
    try:
        return path.is_dir()
    except OSError:
        return False


def where_looked(local_data: str | None) -> str:
    """Where `locate` looks, for a message."""
    return "here" if local_data is None else f"in {local_data} or here"


def find_assembly(config: Config) -> Assembly:
    """The assembly of a configuration, with the names of its alias file.

    Raises
    ------
    DataError
        The file can't be used.
    """
    genome = config.genome
    aliases = None if genome.aliases is None else locate(genome.aliases, config.local_data)
    return open_assembly(genome.assembly, aliases, genome.title)


def sequence_files(config: Config) -> dict[str, Path]:
    """The files of the section `promoters.sequences` by role: positives, negatives, splits.

    Raises
    ------
    ConfigError
        A name is not a file.
    """
    sequences = config.promoters.sequences
    if sequences is None:
        return {}
    found = {}
    for role in ("positives", "negatives", "splits"):
        name = getattr(sequences, role)
        if name is None:
            continue
        found[role] = locate(name, config.local_data)
        if not is_file(found[role]):
            where = where_looked(config.local_data)
            raise ConfigError(f"promoters.sequences.{role}: {name!r} is not a file {where}")
    return found


def chromatin_files(config: Config) -> dict[str, Path]:
    """The files that the section `chromatin` stands for, of tracks, peaks, blacklist and variants.

    The simulation's tracks, their peaks and its variants go together; those of the public bundle are
    left out. Whether a file of the user's own exists is for the caller to see.
    """
    found = {
        key.rpartition(".")[2]: locate(name, config.local_data)
        for key, name in _own_chromatin(config).items()
    }
    if config.chromatin.data.tracks == SIMULATED:
        paths = config.paths
        found["tracks"], found["peaks"] = paths.simulated_tracks, paths.simulated_peaks
        found["variants"] = paths.simulated_variants
    return found


def check_chromatin_files(config: Config) -> None:
    """Refuse tracks, variants or a blacklist that are nowhere, before a run begins.

    Raises
    ------
    ConfigError
        A name in the section `chromatin` is not a file and, of tracks, no folder.
    """
    if not config.has_chromatin:
        return
    for key, name in _own_chromatin(config).items():
        path, folder = locate(name, config.local_data), key.endswith(".tracks")
        if not (is_file(path) or (folder and is_directory(path))):
            kind = "file or folder" if folder else "file"
            where = where_looked(config.local_data)
            raise ConfigError(f"{key}: {name!r} is not a {kind} {where}")


def _own_chromatin(config: Config) -> dict[str, str]:
    """The keys that name a file of the user's own, and the names."""
    data = config.chromatin.data
    tracks = None if data.tracks in (SIMULATED, DEEPSEA) else data.tracks
    named = {
        "chromatin.data.tracks": tracks,
        "chromatin.data.blacklist": data.blacklist,
        "chromatin.variants": config.chromatin.variants,
    }
    return {key: name for key, name in named.items() if name is not None}
