"""Public files by key: where they are, and how one gets here whole.

Addresses, checksums and licences stand in `resources/sources.yaml`. A directory of local files is looked
in first; a download goes on where it was cut, tries mirrors in turn, and is checked before it gets its name.
"""

import shutil
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml

from bigbird_dna.config import DEEPSEA, Config
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.files import atomic_path, checksum
from bigbird_dna.genome.assembly import DEMO
from bigbird_dna.genome.sources.download import DownloadError, download
from bigbird_dna.genome.sources.local import locate, where_looked

GZIP_MAGIC = b"\x1f\x8b"
DEEPSEA_KEYS = {"bundle": "DeepSEA.bundle", "bins": "DeepSEA.bins", "tracks": "DeepSEA.tracks"}


@dataclass(frozen=True)
class Source:
    """One entry of `sources.yaml`."""

    key: str
    file: str
    assembly: str
    urls: tuple[str, ...]
    checksum: str | None  # "md5:…" or "sha256:…"
    megabytes: float
    licence: str
    citation: str
    from_assembly: str | None = None  # of a liftOver chain: the assembly it starts from

    def fault(self, path: Path) -> str | None:
        """What is wrong with a copy of the file; `None` for a good one."""
        if self.checksum is not None:
            algorithm, expected = self.checksum.split(":")
            found = checksum(path, algorithm)
            return None if found == expected else f"its {algorithm} is {found}, not {expected} as published"
        with path.open("rb") as stream:
            start = stream.read(2)
        if not start:
            return "it is empty"
        # Without a checksum this at least tells a server's page of apologies from the file.
        if self.file.endswith(".gz") and start != GZIP_MAGIC:
            return "it is no gzip file"
        return None


@cache
def load_sources() -> dict[str, Source]:
    """All entries of `sources.yaml` by key."""
    text = files("bigbird_dna.resources").joinpath("sources.yaml").read_text()
    return {
        key: Source(key, urls=tuple(entry.pop("urls")), from_assembly=entry.pop("from", None), **entry)
        for key, entry in yaml.safe_load(text).items()
    }


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
    """The sources of a configuration by role: reference, promoters, chain, and those of DeepSEA's data.

    Roles that have none, or a file of the user's own (`own_files`), are left out.

    Raises
    ------
    ConfigError
        A key is unknown and no file, or one is missing; the files are not in one assembly and no
        chain joins them; or `local_data` is no directory.
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
        raise ConfigError(f"local_data: {config.local_data} is no directory")
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
    return sources | deepsea


def own_files(config: Config) -> dict[str, Path]:
    """The roles, of reference and promoters, that a configuration gives a file instead of a key.

    Raises
    ------
    ConfigError
        A name is neither the key of a source nor a file.
    """
    found = {}
    for role, (key, name) in _named(config).items():
        if name in load_sources():
            continue
        # Of a chain one has to know the assembly it starts from, which only a source tells.
        if role == "chain":
            raise ConfigError(f"{key}: {_unknown(name)}")
        found[role] = locate(name, config.local_data)
        if not found[role].is_file():
            where = where_looked(config.local_data)
            keys = ", ".join(sorted(load_sources()))
            raise ConfigError(f"{key}: {name!r} is no file {where}, and no source ({keys})")
    return found


def _named(config: Config) -> dict[str, tuple[str, str]]:
    """The roles that the configuration names something for: its key, and the name."""
    genome, promoters = config.genome, config.promoters
    roles = {
        "reference": ("genome.reference", genome.reference),
        "promoters": ("promoters.source", promoters.source),
        "chain": ("promoters.chain", promoters.chain),
    }
    return {role: (key, name) for role, (key, name) in roles.items() if name is not None}


def fetch(key: str, output: Path, local_data: Path | None = None) -> None:
    """Put the file of a source at `output`, from `local_data` where it is there, else from its addresses.

    `local_data` is searched with its subdirectories for the file's name; a file nearer to the top comes
    first. A download that is cut leaves `output`.part and goes on from there at the next call.

    Raises
    ------
    UsageError
        Unknown key, or no directory `local_data`.
    DataError
        A local file or every download fails its checksum, or no address can be reached.
    """
    source = find_source(key)
    local = _local_file(source, local_data)
    if local is not None:
        _copy(source, local, output)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    for url in source.urls:
        log(f"{key}: {url} ({source.megabytes:g} MB)")
        try:
            _download(source, url, output)
        except DownloadError as error:
            log(f"{url}: {error}")
            failures.append(f"{url}: {error}")
        else:
            log(f"{output}: {key}; licence: {source.licence}; cite {source.citation}")
            return
    raise DataError(
        f"source {key} can't be downloaded ({'; '.join(failures)}); "
        f"to do without, put {source.file} into a directory and name that as local_data"
    )


def _local_file(source: Source, directory: Path | None) -> Path | None:
    if directory is None:
        return None
    if not directory.is_dir():
        raise UsageError(f"local_data: {directory} is no directory")
    found = sorted(
        (path for path in directory.rglob(source.file) if path.is_file()),
        key=lambda path: (len(path.parts), path),
    )
    if not found:
        log(f"{source.key}: no {source.file} in {directory}, downloading")
        return None
    return found[0]


def _copy(source: Source, local: Path, output: Path) -> None:
    fault = source.fault(local)
    if fault is not None:
        raise DataError(f"{local} (source {source.key}): {fault}")
    if output.exists() and output.samefile(local):
        return
    with atomic_path(output) as temporary:
        shutil.copyfile(local, temporary)
    log(f"{output}: {source.key} from {local}")


def _download(source: Source, url: str, output: Path) -> None:
    """Fetch from one address; with the part file of an earlier, cut download where there is one."""
    part = output.with_name(f"{output.name}.part")
    resumed = download(url, part, any_server=source.checksum is not None)
    fault = source.fault(part)
    if fault is not None and resumed:
        # The pieces may come from two versions of the file: once more in one piece.
        part.unlink()
        download(url, part, any_server=False)
        fault = source.fault(part)
    if fault is not None:
        part.unlink()
        raise DownloadError(fault)
    part.replace(output)
