"""The file that a key of a configuration refers to, local or public.

Files of the user's own that a configuration names, and the simulation's.

The public files of a configuration: which ones, and that they fit together.

Addresses, checksums and licences stand in `resources/sources.yaml`.

The files that a run starts from, whoever they come from.
"""

from dataclasses import dataclass
from pathlib import Path

from bigbird_dna.config import DEEPSEA, SIMULATED, Config
from bigbird_dna.errors import ConfigError, UsageError
from bigbird_dna.genome.assembly import DEMO, Assembly, open_assembly
from bigbird_dna.genome.sources.catalogue import Source, load_sources


def locate(name: str, data_dir: str | None) -> Path:
    """Where a file or folder is that a configuration names.

    Under `data_dir` if it is there, else as it is named, from the working directory; whether
    it exists there is for the caller to see. An absolute path stands for itself.
    """
    local = Path(data_dir or ".") / name
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


def where_looked(data_dir: str | None) -> str:
    """Where `locate` looks, for a message."""
    return "here" if data_dir is None else f"in {data_dir} or here"


def find_assembly(config: Config) -> Assembly:
    """The assembly of a configuration, with the names of its alias file.

    Raises
    ------
    DataError
        The file can't be used.
    """
    genome = config.genome
    aliases = None if genome.aliases is None else locate(genome.aliases, config.data_dir)
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
        found[role] = locate(name, config.data_dir)
        if not is_file(found[role]):
            where = where_looked(config.data_dir)
            raise ConfigError(f"promoters.sequences.{role}: {name!r} is not a file {where}")
    return found


def chromatin_files(config: Config) -> dict[str, Path]:
    """The files that the section `chromatin` stands for, of tracks, peaks, blacklist and variants.

    The simulation's tracks, their peaks and its variants go together; those of the public bundle are
    left out. Whether a file of the user's own exists is for the caller to see.
    """
    found = {
        key.rpartition(".")[2]: locate(name, config.data_dir) for key, name in _own_chromatin(config).items()
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
        path, folder = locate(name, config.data_dir), key.endswith(".tracks")
        if not (is_file(path) or (folder and is_directory(path))):
            kind = "file or folder" if folder else "file"
            where = where_looked(config.data_dir)
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


DEEPSEA_KEYS = {"bundle": "DeepSEA.bundle", "bins": "DeepSEA.bins", "tracks": "DeepSEA.tracks"}


def find_source(key: str) -> Source:
    """The entry of a key; an unknown one raises `UsageError` with the keys there are."""
    sources = load_sources()
    if key not in sources:
        raise UsageError(_unknown(key))
    return sources[key]


def _unknown(key: str) -> str:
    return f"no source {key!r}; there are {', '.join(sorted(load_sources()))}"


def deepsea_sources(assembly: str) -> dict[str, Source]:
    """The files of DeepSEA's data by role: bundle, bins, tracks.

    Raises
    ------
    ConfigError
        The genome is of another assembly.
    """
    sources = {role: find_source(key) for role, key in DEEPSEA_KEYS.items()}
    theirs = sources["bundle"].assembly
    if assembly != theirs:
        raise ConfigError(f"chromatin.data.tracks: {DEEPSEA} is {theirs}, the genome is {assembly}")
    return sources


def check_sources(config: Config) -> dict[str, Source]:
    """The sources of a configuration by role: reference, promoters, chain, annotation, and DeepSEA's data.

    Roles that have none, or a file of the user's own (`own_files`), are left out.

    Raises
    ------
    ConfigError
        A key is unknown and no file, or one is missing; the files are not in one assembly and no
        chain joins them; or `data_dir` is not a directory.
    """
    genome = config.genome
    deepsea = deepsea_sources(genome.assembly) if config.chromatin.data.tracks == DEEPSEA else {}
    if genome.reference is None:
        if genome.assembly != DEMO:
            raise ConfigError(f"genome.reference: assembly {genome.assembly} needs a source or a file")
        for key, name in _named(config).values():
            raise ConfigError(f"{key}: {name} needs a genome.reference beside it")
        return {}
    if config.data_dir is not None and not Path(config.data_dir).is_dir():
        raise ConfigError(f"data_dir: {config.data_dir} is not a directory")
    own = own_files(config)
    sources = {role: find_source(key) for role, (_, key) in _named(config).items() if role not in own}
    reference, promoters, chain = (sources.get(role) for role in ("reference", "promoters", "chain"))
    if reference is not None and reference.assembly != genome.assembly:
        raise ConfigError(f"genome.reference: {reference.key} is {reference.assembly}, not {genome.assembly}")
    if chain is not None and config.promoters.source is None:
        raise ConfigError(f"promoters.chain: {chain.key} lifts promoters, and there are none")
    # A file has no assembly of its own: the reference is on the genome's, promoters where the chain starts.
    start = (chain.from_assembly or "") if chain else genome.assembly
    theirs = promoters.assembly if promoters else start
    if theirs != start or (chain and chain.assembly != genome.assembly):
        joined = f"{chain.key} leads from {start} to {chain.assembly}" if chain else "there is no chain"
        raise ConfigError(
            f"promoters.source: {config.promoters.source} is {theirs}, the genome is "
            f"{genome.assembly}, and {joined}"
        )
    _check_annotation(config, sources.get("annotation"))
    return sources | deepsea


def _check_annotation(config: Config, source: Source | None) -> None:
    name = config.promoters.annotation
    if name is not None and config.promoters.source is None:
        raise ConfigError(f"promoters.annotation: {name} is for promoter windows, and there are no promoters")
    if source is not None and source.assembly != config.genome.assembly:
        raise ConfigError(
            f"promoters.annotation: {source.key} is {source.assembly}, the genome is "
            f"{config.genome.assembly}: an annotation is not lifted"
        )


def annotation_file(config: Config) -> Path | None:
    """Where the file of `promoters.annotation` is, a run's download or the user's own; None: none is named.

    Whether it exists is for the caller to see.
    """
    name = config.promoters.annotation
    if name is None:
        return None
    source = load_sources().get(name)
    return locate(name, config.data_dir) if source is None else config.paths.download(source.file)


def own_files(config: Config) -> dict[str, Path]:
    """The roles that a configuration gives a file instead of a key.

    They are among reference, aliases, promoters and annotation.

    Raises
    ------
    ConfigError
        A name is neither the key of a source nor a file.
    """
    found = {}
    for role, (key, name) in _named(config).items():
        if name in load_sources() and role != "aliases":
            continue
        # Of a chain one has to know the assembly it starts from, which only a source tells.
        if role == "chain":
            raise ConfigError(f"{key}: {_unknown(name)}")
        found[role] = locate(name, config.data_dir)
        if not is_file(found[role]):
            where = where_looked(config.data_dir)
            text = f"{key}: {name!r} is not a file {where}"
            if role != "aliases":
                text += f", and not a source ({', '.join(sorted(load_sources()))})"
            raise ConfigError(text)
    return found


def _named(config: Config) -> dict[str, tuple[str, str]]:
    """The roles that the configuration names something for: its key, and the name."""
    genome, promoters = config.genome, config.promoters
    roles = {
        "reference": ("genome.reference", genome.reference),
        "aliases": ("genome.aliases", genome.aliases),
        "promoters": ("promoters.source", promoters.source),
        "chain": ("promoters.chain", promoters.chain),
        "annotation": ("promoters.annotation", promoters.annotation),
    }
    return {role: (key, name) for role, (key, name) in roles.items() if name is not None}


@dataclass(frozen=True)
class Inputs:
    """Files by role; a role that a run hasn't got is left out.

    Roles are reference, aliases, promoters, chain, annotation, positives, negatives, splits, tracks, peaks,
    blacklist, variants, and of DeepSEA's data bundle and bins.
    """

    files: dict[str, Path]
    sources: dict[str, Source]  # the roles whose file is fetched

    @property
    def keys(self) -> dict[str, str]:
        """The key that `prepare fetch` takes, by the name of the file."""
        return {source.file: source.key for source in self.sources.values()}


def find_inputs(config: Config) -> Inputs:
    """The files of a configuration: simulated, to be fetched, or the user's own.

    Raises
    ------
    ConfigError
        As `check_sources`, `own_files`, `sequence_files` and `check_chromatin_files`.
    """
    sources, own, paths = check_sources(config), own_files(config), config.paths
    check_chromatin_files(config)
    files = {role: paths.download(source.file) for role, source in sources.items()} | own
    files |= sequence_files(config)
    if config.is_simulated:
        files |= {"reference": paths.simulated_reference, "promoters": paths.simulated_promoters}
    if config.has_chromatin:
        files |= chromatin_files(config)
    return Inputs(files, sources)
