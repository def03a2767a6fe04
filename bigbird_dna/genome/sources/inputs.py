"""The files that a configuration refers to: simulated, public ones by key, or the user's own.

Addresses, checksums and licenses of public files stand in `resources/sources.yaml`.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from bigbird_dna.config import DEEPSEA, SIMULATED, Config
from bigbird_dna.errors import ConfigError, UsageError
from bigbird_dna.genome.assembly import DEMO, Assembly, open_assembly
from bigbird_dna.genome.sources.catalogue import Source, load_sources

_GENOME = ("reference", "aliases", "promoters", "chain", "annotation")
_CHROMATIN = ("tracks", "blacklist", "variants")


def locate(name: str, data_dir: str | None) -> Path:
    """Where a file or folder is that a configuration names.

    Under `data_dir` if it is there, else as it is named, from the working directory; whether
    it exists there is for the caller to see. An absolute path stands for itself.
    """
    local = Path(data_dir or ".") / name
    return local if is_file(local) or is_directory(local) else Path(name)


def is_file(path: Path) -> bool:
    """Whether a file is there; one that can't be looked at, or can't exist, is not."""
    return os.path.isfile(path)  # noqa: PTH113 - that of Path raises for some


def is_directory(path: Path) -> bool:
    """As `is_file`, of directories."""
    return os.path.isdir(path)  # noqa: PTH112


def find_assembly(config: Config) -> Assembly:
    """The assembly of a configuration, with the names of its alias file."""
    genome = config.genome
    aliases = None if genome.aliases is None else locate(genome.aliases, config.data_dir)
    return open_assembly(genome.assembly, aliases, genome.title)


def _named(config: Config) -> dict[str, tuple[str, str]]:
    """The roles that the configuration names something for: its key, and the name."""
    genome, promoters, data = config.genome, config.promoters, config.chromatin.data
    roles = {
        "reference": ("genome.reference", genome.reference),
        "aliases": ("genome.aliases", genome.aliases),
        "promoters": ("promoters.source", promoters.source),
        "chain": ("promoters.chain", promoters.chain),
        "annotation": ("promoters.annotation", promoters.annotation),
        **{
            role: (f"promoters.sequences.{role}", getattr(promoters.sequences, role, None))
            for role in ("positives", "negatives", "splits")
        },
        "tracks": ("chromatin.data.tracks", None if data.tracks in (SIMULATED, DEEPSEA) else data.tracks),
        "blacklist": ("chromatin.data.blacklist", data.blacklist),
        "variants": ("chromatin.variants", config.chromatin.variants),
    }
    return {role: (key, name) for role, (key, name) in roles.items() if name is not None}


def chromatin_files(config: Config) -> dict[str, Path]:
    """The files that the section `chromatin` stands for: tracks, peaks, blacklist and variants.

    The simulation's tracks, their peaks and its variants go together; those of the public bundle are
    left out. Whether a file of the user's own exists is for the caller to see.
    """
    named, paths = _named(config), config.paths
    found = {role: locate(named[role][1], config.data_dir) for role in _CHROMATIN if role in named}
    if config.chromatin.data.tracks == SIMULATED:
        found["tracks"], found["peaks"] = paths.simulated_tracks, paths.simulated_peaks
        found["variants"] = paths.simulated_variants
    return found


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
    """The files of DeepSEA's data by role: bundle, bins, tracks; `ConfigError` for a genome of another
    assembly.
    """
    sources = {role: find_source(key) for role, key in DEEPSEA_KEYS.items()}
    theirs = sources["bundle"].assembly
    if assembly != theirs:
        raise ConfigError(f"chromatin.data.tracks: {DEEPSEA} is {theirs}, the genome is {assembly}")
    return sources


def check_sources(config: Config) -> dict[str, Source]:
    """The sources of a configuration by role: reference, promoters, chain, annotation, and DeepSEA's data.

    Roles that have none, or a file of the user's own (`own_files`), are left out. Unknown keys, files of
    several assemblies that no chain joins, and a `data_dir` that is no directory are a `ConfigError`.
    """
    genome = config.genome
    deepsea = deepsea_sources(genome.assembly) if config.chromatin.data.tracks == DEEPSEA else {}
    if genome.reference is None:
        if genome.assembly != DEMO:
            raise ConfigError(f"genome.reference: assembly {genome.assembly} needs a source or a file")
        for role, (key, name) in _named(config).items():
            if role in _GENOME:
                raise ConfigError(f"{key}: {name} needs a genome.reference beside it")
        return {}
    if config.data_dir is not None and not Path(config.data_dir).is_dir():
        raise ConfigError(f"data_dir: {config.data_dir} is not a directory")
    own = own_files(config)
    named = _named(config)
    sources = {role: find_source(named[role][1]) for role in _GENOME if role in named and role not in own}
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
    annotation = sources.get("annotation")
    if "annotation" in named and config.promoters.source is None:
        key, name = named["annotation"]
        raise ConfigError(f"{key}: {name} is for promoter windows, and there are no promoters")
    if annotation is not None and annotation.assembly != genome.assembly:
        raise ConfigError(
            f"promoters.annotation: {annotation.key} is {annotation.assembly}, the genome is "
            f"{genome.assembly}: an annotation is not lifted"
        )
    return sources | deepsea


def annotation_file(config: Config) -> Path | None:
    """Where the file of `promoters.annotation` is, a run's download or the user's own; None: none is named.

    Whether it exists is for the caller to see.
    """
    name = config.promoters.annotation
    if name is None:
        return None
    source = load_sources().get(name)
    return locate(name, config.data_dir) if source is None else config.paths.download(source.file)


def own_files(config: Config, data_sets: bool = False) -> dict[str, Path]:
    """The roles that a configuration gives a file instead of a key; `ConfigError` if one is no file.

    They are the genome's, and with `data_sets` also those of promoter sequences and chromatin.
    """
    found = {}
    for role, (key, name) in _named(config).items():
        if not (role in _GENOME or data_sets):
            continue
        is_public = role in _GENOME and role != "aliases"
        if (is_public and name in load_sources()) or (role in _CHROMATIN and not config.has_chromatin):
            continue
        # Of a chain one has to know the assembly it starts from, which only a source tells.
        if role == "chain":
            raise ConfigError(f"{key}: {_unknown(name)}")
        also = f", and not a source ({', '.join(sorted(load_sources()))})" if is_public else ""
        found[role] = path = locate(name, config.data_dir)
        if not (is_file(path) or (role == "tracks" and is_directory(path))):
            kind = "file or folder" if role == "tracks" else "file"
            where = "here" if config.data_dir is None else f"in {config.data_dir} or here"
            raise ConfigError(f"{key}: {name!r} is not a {kind} {where}{also}")
    return found


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
    """The files of a configuration: simulated, to be fetched, or the user's own."""
    sources, paths = check_sources(config), config.paths
    files = {role: paths.download(source.file) for role, source in sources.items()}
    files |= own_files(config, data_sets=True)
    if config.is_simulated:
        files |= {"reference": paths.simulated_reference, "promoters": paths.simulated_promoters}
    if config.has_chromatin:
        files |= chromatin_files(config)
    return Inputs(files, sources)
