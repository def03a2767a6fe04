"""The public files of a configuration: which ones, and that they fit together.

Addresses, checksums and licences stand in `resources/sources.yaml`.
"""

from pathlib import Path

from bigbird_dna.config import DEEPSEA, Config
from bigbird_dna.errors import ConfigError, UsageError
from bigbird_dna.genome.assembly import DEMO
from bigbird_dna.genome.sources.catalogue import Source, load_sources
from bigbird_dna.genome.sources.local import is_file, locate, where_looked

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
        chain joins them; or `local_data` is not a directory.
    """
    genome = config.genome
    deepsea = deepsea_sources(genome.assembly) if config.chromatin.data.tracks == DEEPSEA else {}
    if genome.reference is None:
        if genome.assembly != DEMO:
            raise ConfigError(f"genome.reference: assembly {genome.assembly} needs a source or a file")
        for key, name in _named(config).values():
            raise ConfigError(f"{key}: {name} needs a genome.reference beside it")
        return {}
    if config.local_data is not None and not Path(config.local_data).is_dir():
        raise ConfigError(f"local_data: {config.local_data} is not a directory")
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
    return locate(name, config.local_data) if source is None else config.paths.download(source.file)


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
        found[role] = locate(name, config.local_data)
        if not is_file(found[role]):
            where = where_looked(config.local_data)
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
