"""Public files by key, as listed in `resources/sources.yaml`, and the input files of a configuration."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from bigbird_dna.config.chromatin import DEEPSEA, NOT_FILES, SIMULATED
from bigbird_dna.errors import ConfigError, UsageError, one_of
from bigbird_dna.genome.assembly import DEMO, Assembly, open_assembly

if TYPE_CHECKING:  # the whole configuration, which loading a model does not need
    from bigbird_dna.config.run import Config


@dataclass(frozen=True)
class Source:
    """One entry of `sources.yaml`."""

    key: str
    file: str
    assembly: str
    urls: tuple[str, ...]
    checksum: str | None  # "md5:…" or "sha256:…"
    megabytes: float
    license: str
    citation: str
    from_assembly: str | None = None  # of a liftOver chain: where it starts


@cache
def load_sources() -> dict[str, Source]:
    """Return all entries of `sources.yaml` by key."""
    text = files("bigbird_dna.resources").joinpath("sources.yaml")
    sources = {}
    for key, entry in yaml.safe_load(text.read_text(encoding="utf-8")).items():
        start = entry.pop("from", None)
        urls = tuple(entry.pop("urls"))
        sources[key] = Source(key=key, urls=urls, from_assembly=start, **entry)
    return sources


def find_source(key: str) -> Source:
    """Return the entry of a key; `UsageError` for an unknown key lists the known ones."""
    sources = load_sources()
    if key not in sources:
        raise UsageError(f"unknown source {key!r}: {one_of(key, sorted(sources))}")
    return sources[key]


def deepsea_sources(assembly: str) -> dict[str, Source]:
    """Return DeepSEA's data by role: bundle, bins, tracks; `ConfigError` for a genome of another assembly."""
    sources = {
        role: find_source(f"DeepSEA.{role}") for role in ("bundle", "bins", "tracks")
    }
    theirs = sources["bundle"].assembly
    if assembly != theirs:
        raise ConfigError(
            f"chromatin.data.tracks: {DEEPSEA} is on {theirs}, but the genome is {assembly}"
        )
    return sources


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
    aliases = None
    if genome.aliases is not None:
        aliases = locate(genome.aliases, config.data_dir)
    return open_assembly(genome.assembly, aliases, genome.title)


def chromatin_files(config: "Config") -> dict[str, Path]:
    """Return the files of the section `chromatin`: tracks, peaks, blacklist and variants.

    Simulated tracks come with their peaks and variants; tracks of start sites are in the run's promoters; the
    files of the public bundle are omitted. The caller checks whether user-supplied files exist.
    """
    chromatin, paths = config.chromatin, config.paths
    tracks = chromatin.data.tracks
    if tracks == SIMULATED:
        return {
            "tracks": paths.simulated_tracks,
            "peaks": paths.simulated_peaks,
            "variants": paths.simulated_variants,
        }

    found = {}
    for role, name in (
        ("tracks", None if tracks in NOT_FILES else tracks),
        ("blacklist", chromatin.data.blacklist),
        ("variants", chromatin.variants),
    ):
        if name is not None:
            found[role] = locate(name, config.data_dir)

    return found


@dataclass(frozen=True)
class Inputs:
    """Files by role; roles that a run does not have are omitted.

    Roles are reference, aliases, promoters, chain, annotation, labeled1, labeled2 …, labeled_negatives,
    tracks, peaks, blacklist, variants, and bundle and bins of DeepSEA's data.
    """

    files: dict[str, Path]
    sources: dict[str, Source]  # roles whose file is downloaded


def find_inputs(config: "Config", *, data_sets: bool = True) -> Inputs:
    """Return the files of a configuration: simulated, downloaded, or user-supplied.

    Without `data_sets`, user-supplied labeled sequences and tracks are omitted. `ConfigError`: unknown keys,
    missing files, and files of different assemblies without a chain.
    """
    genome, promoters, paths = config.genome, config.promoters, config.paths
    data, sequences = config.chromatin.data, config.sequences

    entries = [
        ("reference", "genome.reference", genome.reference),
        ("aliases", "genome.aliases", genome.aliases),
        ("promoters", "promoters.source", promoters.source),
        ("chain", "promoters.chain", promoters.chain),
        ("annotation", "promoters.annotation", promoters.annotation),
    ]
    if genome.reference is None and config.pieces is None:
        if genome.assembly != DEMO:
            raise ConfigError(
                f"genome.reference: assembly {genome.assembly} needs a source or a file"
            )

        for _, key, name in entries:
            if name is not None:
                raise ConfigError(f"{key}: {name} needs genome.reference")
    elif config.data_dir is not None and not Path(config.data_dir).is_dir():
        raise ConfigError(f"data_dir: {config.data_dir} is not a directory")

    if data_sets:
        entries.append(
            ("labeled_negatives", "sequences.negatives", sequences.negatives)
        )
        for number, file in enumerate(sequences.files, 1):
            entries.append((f"labeled{number}", "sequences.data", file))

        if config.has_chromatin:
            tracks = None if data.tracks in NOT_FILES else data.tracks
            entries += [
                ("tracks", "chromatin.data.tracks", tracks),
                ("blacklist", "chromatin.data.blacklist", data.blacklist),
                ("variants", "chromatin.variants", config.chromatin.variants),
            ]

    sources: dict[str, Source] = {}
    found: dict[str, Path] = {}
    known = load_sources()
    for role, key, name in entries:
        if name is None:
            continue

        is_public = role in ("reference", "promoters", "chain", "annotation")
        if is_public and name in known:
            sources[role] = known[name]
            continue

        path = locate(name, config.data_dir)
        # The assembly that a chain starts from is only known for sources.
        exists = path.is_file() or (role == "tracks" and path.is_dir())
        if role == "chain" or not exists:
            hint = f", nor a known source ({', '.join(sorted(known))})"
            raise ConfigError(
                f"{key}: {name!r} is not a file {searched(config)}{hint if is_public else ''}"
            )

        found[role] = path

    if data.tracks == DEEPSEA:
        sources |= deepsea_sources(genome.assembly)

    # Files have no assembly: a reference file is on the genome's, a promoter file where the chain starts.
    chain = sources.get("chain")
    start = genome.assembly if chain is None else chain.from_assembly
    for role, expected in (
        ("reference", genome.assembly),
        ("annotation", genome.assembly),
        ("chain", genome.assembly),
        ("promoters", start),
    ):
        source = sources.get(role)
        if source is not None and source.assembly != expected:
            raise ConfigError(
                f"source {source.key} is on {source.assembly}, expected {expected}: the genome is "
                f"{genome.assembly}, and promoters.chain is {promoters.chain}"
            )

    if config.pieces is not None:
        found["reference"] = paths.pieces / "genome.fa.gz"
        found["promoters"] = paths.pieces / "promoters.tsv"

    found |= {role: paths.download(source.file) for role, source in sources.items()}
    if config.is_simulated:
        found["reference"] = paths.simulated_reference
        found["promoters"] = paths.simulated_promoters

    if config.has_chromatin and data_sets:
        found = {**chromatin_files(config), **found}

    return Inputs(found, sources)
