"""Public files by key, as listed in `resources/sources.yaml`, and the input files of a configuration."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, ConfigDict, Field

from bigbird_dna.config.chromatin import DEEPSEA, NOT_FILES, SIMULATED, TSS
from bigbird_dna.config.safe_yaml import (
    check_addresses,
    check_entry,
    read_values,
    shown,
)
from bigbird_dna.errors import ConfigError, UsageError, one_of
from bigbird_dna.genome.assembly import DEMO, Assembly, open_assembly

if TYPE_CHECKING:  # the whole configuration, which loading a model does not need
    from bigbird_dna.config.run import Config

_KEY = "(key)"  # not a field name of an entry


def _file(name: str) -> str:
    if name.startswith(".") or Path(name).name != name:
        raise ValueError("must be a file name without a directory")
    return name


Line = Annotated[str, Field(pattern=r"^[^\n]*[^\s][^\n]*$")]
Checksum = Annotated[str, Field(pattern="^(md5:[0-9a-f]{32}|sha256:[0-9a-f]{64})$")]


@dataclass(frozen=True)
class Source:
    """One entry of `sources.yaml`."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    key: Annotated[str, Field(alias=_KEY)]
    file: Annotated[Line, AfterValidator(_file)]
    assembly: Line
    urls: Annotated[tuple[str, ...], AfterValidator(check_addresses)]
    checksum: Checksum | None
    megabytes: Annotated[float, Field(strict=True, gt=0)]
    license: Line
    citation: Line
    # For a liftOver chain: the assembly it starts from.
    from_assembly: Annotated[Line | None, Field(alias="from")] = None


@cache
def load_sources() -> dict[str, Source]:
    """Return all entries of `sources.yaml` by key."""
    with as_file(files("bigbird_dna.resources").joinpath("sources.yaml")) as path:
        return read_sources(path)


def read_sources(path: Path) -> dict[str, Source]:
    """Read a file of sources; `ConfigError` names the invalid entry and field."""
    entries = read_values(path)
    where = {key: f"{path}: source {shown(key)}" for key in entries}
    return {
        key: check_entry(Source, entry, where[key], {_KEY: key})
        for key, entry in entries.items()
    }


_GENOME = ("reference", "aliases", "promoters", "chain", "annotation")
_CHROMATIN = ("tracks", "blacklist", "variants")


def locate(name: str, data_dir: str | None) -> Path:
    """Return the path of a file or folder that a configuration names.

    It is relative to `data_dir` if it exists there, else to the working directory; the caller checks whether
    it exists. An absolute path is unchanged.
    """
    local = Path(data_dir or ".") / name
    return local if local.exists() else Path(name)


def searched(config: "Config") -> str:
    """Return where `locate` looks for the files of a configuration, for messages."""
    return "here" if config.data_dir is None else f"in {config.data_dir} or here"


def find_assembly(config: "Config") -> Assembly:
    """Return the assembly of a configuration, with the names of its alias file."""
    genome = config.genome
    aliases = (
        None if genome.aliases is None else locate(genome.aliases, config.data_dir)
    )
    return open_assembly(genome.assembly, aliases, genome.title)


def labeled_role(number: int) -> str:
    """Return the role of a file of `sequences.data` by its number, from 0."""
    return f"labeled{number + 1}"


def _named(config: "Config") -> dict[str, tuple[str, str]]:
    """Return key and name for each role that the configuration specifies."""
    genome, promoters, data = config.genome, config.promoters, config.chromatin.data
    labeled = config.sequences
    roles = {
        "reference": ("genome.reference", genome.reference),
        "aliases": ("genome.aliases", genome.aliases),
        "promoters": ("promoters.source", promoters.source),
        "chain": ("promoters.chain", promoters.chain),
        "annotation": ("promoters.annotation", promoters.annotation),
        "labeled_negatives": ("sequences.negatives", labeled.negatives),
        "labeled_splits": ("sequences.splits", labeled.splits),
        **{
            labeled_role(number): ("sequences.data", name)
            for number, name in enumerate(labeled.files)
        },
        "tracks": (
            "chromatin.data.tracks",
            None if data.tracks in NOT_FILES else data.tracks,
        ),
        "blacklist": ("chromatin.data.blacklist", data.blacklist),
        "variants": ("chromatin.variants", config.chromatin.variants),
    }
    return {
        role: (key, name) for role, (key, name) in roles.items() if name is not None
    }


def chromatin_files(config: "Config") -> dict[str, Path]:
    """Return the files of the section `chromatin`: tracks, peaks, blacklist and variants.

    Simulated tracks come with their peaks and variants; tracks of start sites are in the run's promoters; the
    files of the public bundle are omitted. The caller checks whether user-supplied files exist.
    """
    named, paths = _named(config), config.paths
    found = {
        role: locate(named[role][1], config.data_dir)
        for role in _CHROMATIN
        if role in named
    }
    if config.chromatin.data.tracks == SIMULATED:
        found["tracks"], found["peaks"] = paths.simulated_tracks, paths.simulated_peaks
        found["variants"] = paths.simulated_variants
    elif config.chromatin.data.tracks == TSS:
        found["tracks"] = paths.promoters
    return found


DEEPSEA_KEYS = {
    "bundle": "DeepSEA.bundle",
    "bins": "DeepSEA.bins",
    "tracks": "DeepSEA.tracks",
}


def find_source(key: str) -> Source:
    """Return the entry of a key; `UsageError` for an unknown key lists the known ones."""
    sources = load_sources()
    if key not in sources:
        raise UsageError(_unknown(key))
    return sources[key]


def _unknown(key: str) -> str:
    return f"unknown source {key!r}: {one_of(key, sorted(load_sources()))}"


def deepsea_sources(assembly: str) -> dict[str, Source]:
    """Return DeepSEA's data by role: bundle, bins, tracks; `ConfigError` for a genome of another assembly."""
    sources = {role: find_source(key) for role, key in DEEPSEA_KEYS.items()}
    theirs = sources["bundle"].assembly
    if assembly != theirs:
        raise ConfigError(
            f"chromatin.data.tracks: {DEEPSEA} is on {theirs}, but the genome is {assembly}"
        )
    return sources


def check_sources(config: "Config") -> dict[str, Source]:
    """Return a configuration's sources by role: reference, promoters, chain, annotation and DeepSEA's data.

    Roles without a source, or with a user-supplied file (`own_files`), are omitted. Unknown keys, files of
    different assemblies without a chain, and a `data_dir` that is not a directory are a `ConfigError`.
    """
    genome = config.genome
    if config.chromatin.data.tracks == TSS and not config.has_promoters:
        raise ConfigError(
            f"chromatin.data.tracks: {TSS} needs promoters.source, the annotated start sites"
        )
    deepsea = (
        deepsea_sources(genome.assembly)
        if config.chromatin.data.tracks == DEEPSEA
        else {}
    )
    if genome.reference is None:
        if genome.assembly != DEMO:
            raise ConfigError(
                f"genome.reference: assembly {genome.assembly} needs a source or a file"
            )
        for role, (key, name) in _named(config).items():
            if role in _GENOME:
                raise ConfigError(f"{key}: {name} needs genome.reference")
        return {}
    if config.data_dir is not None and not Path(config.data_dir).is_dir():
        raise ConfigError(f"data_dir: {config.data_dir} is not a directory")
    own = own_files(config)
    named = _named(config)
    sources = {
        role: find_source(named[role][1])
        for role in _GENOME
        if role in named and role not in own
    }
    reference, promoters, chain = (
        sources.get(role) for role in ("reference", "promoters", "chain")
    )
    if reference is not None and reference.assembly != genome.assembly:
        raise ConfigError(
            f"genome.reference: {reference.key} is {reference.assembly}, not {genome.assembly}"
        )
    if chain is not None and config.promoters.source is None:
        raise ConfigError(
            f"promoters.chain: {chain.key} lifts promoters, but promoters.source is missing"
        )
    # Files have no assembly: a reference file is on the genome's, a promoter file where the chain starts.
    start = (chain.from_assembly or "") if chain else genome.assembly
    theirs = promoters.assembly if promoters else start
    if theirs != start or (chain and chain.assembly != genome.assembly):
        joined = (
            f"{chain.key} maps {start} to {chain.assembly}"
            if chain
            else "promoters.chain is missing"
        )
        raise ConfigError(
            f"promoters.source: {config.promoters.source} is on {theirs}, but the genome is "
            f"{genome.assembly}, and {joined}"
        )
    annotation = sources.get("annotation")
    if "annotation" in named and config.promoters.source is None:
        key, name = named["annotation"]
        raise ConfigError(
            f"{key}: {name} is for promoter windows, but promoters.source is missing"
        )
    if annotation is not None and annotation.assembly != genome.assembly:
        raise ConfigError(
            f"promoters.annotation: {annotation.key} is on {annotation.assembly}, but the genome is "
            f"{genome.assembly}; annotations cannot be lifted"
        )
    return sources | deepsea


def annotation_file(config: "Config") -> Path | None:
    """Return the path of `promoters.annotation`, a download or a user-supplied file; None if not specified.

    The caller checks whether it exists.
    """
    name = config.promoters.annotation
    if name is None:
        return None
    source = load_sources().get(name)
    return (
        locate(name, config.data_dir)
        if source is None
        else config.paths.download(source.file)
    )


def own_files(config: "Config", data_sets: bool = False) -> dict[str, Path]:
    """Return the user-supplied files of a configuration by role; `ConfigError` if one is not a file.

    The roles are those of the genome and, with `data_sets`, also of labeled sequences and chromatin.
    """
    found = {}
    for role, (key, name) in _named(config).items():
        if not (role in _GENOME or data_sets):
            continue
        is_public = role in _GENOME and role != "aliases"
        if (is_public and name in load_sources()) or (
            role in _CHROMATIN and not config.has_chromatin
        ):
            continue
        # The assembly that a chain starts from is only known for sources.
        if role == "chain":
            raise ConfigError(f"{key}: {_unknown(name)}")
        also = (
            f", nor a known source ({', '.join(sorted(load_sources()))})"
            if is_public
            else ""
        )
        found[role] = path = locate(name, config.data_dir)
        if not (path.is_file() or (role == "tracks" and path.is_dir())):
            kind = "file or folder" if role == "tracks" else "file"
            raise ConfigError(
                f"{key}: {name!r} is not a {kind} {searched(config)}{also}"
            )
    return found


@dataclass(frozen=True)
class Inputs:
    """Files by role; roles that a run does not have are omitted.

    Roles are reference, aliases, promoters, chain, annotation, labeled1, labeled2 …, labeled_negatives,
    labeled_splits, tracks, peaks, blacklist, variants, and bundle and bins of DeepSEA's data.
    """

    files: dict[str, Path]
    sources: dict[str, Source]  # roles whose file is downloaded

    @property
    def keys(self) -> dict[str, str]:
        """Keys for `prepare fetch` by file name."""
        return {source.file: source.key for source in self.sources.values()}


def find_inputs(config: "Config") -> Inputs:
    """Return the files of a configuration: simulated, downloaded, or user-supplied."""
    sources, paths = check_sources(config), config.paths
    files = {role: paths.download(source.file) for role, source in sources.items()}
    files |= own_files(config, data_sets=True)
    if config.is_simulated:
        files |= {
            "reference": paths.simulated_reference,
            "promoters": paths.simulated_promoters,
        }
    if config.has_chromatin:
        files |= chromatin_files(config)
    return Inputs(files, sources)
