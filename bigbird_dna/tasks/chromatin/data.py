"""The chromatin data set of a configuration: from peaks, or as DeepSEA published it."""

from pathlib import Path

from bigbird_dna.config import DEEPSEA, Config
from bigbird_dna.console import log
from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.genome.assembly import Assembly
from bigbird_dna.genome.chromatin.building import build_dataset
from bigbird_dna.genome.chromatin.label_pieces import write_label_piece
from bigbird_dna.genome.chromatin.labelling import Labelling
from bigbird_dna.genome.chromatin.region_splits import RegionSplits
from bigbird_dna.genome.chromatin.track_folder import tracks_from_folder
from bigbird_dna.genome.chromatin.tracks import Track, read_tracks
from bigbird_dna.genome.deepsea.dataset import build_deepsea
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sources.local import chromatin_files, find_assembly
from bigbird_dna.genome.sources.public import deepsea_sources
from bigbird_dna.genome.splits import find_named
from bigbird_dna.pieces import find_piece


def prepare_data(
    config: Config,
    reference: Path,
    output: Path,
    *,
    tracks: Path | None = None,
    blacklist: Path | None = None,
    bundle: Path | None = None,
    bins: Path | None = None,
    piece: str | None = None,
) -> None:
    """Write the data set `output` as the sections `genome` and `chromatin.data` say.

    Parameters
    ----------
    tracks, blacklist
        Track table or folder of peaks, and BED of regions left out; none: those of the configuration.
    bundle, bins
        DeepSEA's bundle and the positions of its bins, where chromatin.data.tracks is "deepsea"; none: among
        the run's downloads.
    piece
        "3/8": the third of eight pieces with as many bins each, for `merge_pieces`; `output` is its file.
        None: the whole data set.

    Raises
    ------
    ConfigError
        No tracks are named, or contigs and regions don't fit the reference.
    UsageError
        A blacklist or a piece of DeepSEA's data, or their bins without them.
    DataError
        A file is missing or can't be used.
    """
    part = find_piece(piece, output)
    if config.chromatin.data.tracks == DEEPSEA:
        if part is not None:
            raise UsageError(f"piece {part}: DeepSEA's labels are taken as published, in one piece")
        if blacklist is not None:
            raise UsageError(f"--blacklist {blacklist}: DeepSEA's bins are taken as published")
        _published(config, reference, output, {"bundle": bundle, "bins": bins, "tracks": tracks})
        return
    if bins is not None:
        raise UsageError(f"--bed {bins}: goes with --bundle only")
    data, files = config.chromatin.data, chromatin_files(config)
    genome, assembly = Reference(reference), find_assembly(config)
    table = _tracks(config, tracks or files.get("tracks"))
    labelling = Labelling(
        bin_size=data.bin,
        rule=data.label,
        widen=data.widen,
        window=data.widest,
        max_n=data.max_n,
        negative_fraction=data.negative_fraction,
        min_positives=data.minimum_positives,
        min_held_out=data.minimum_held_out,
        seed=config.seed,
    )
    splits = _splits(config, genome, assembly)
    made_of = genome, assembly, table, splits, labelling, blacklist or files.get("blacklist")
    if part is None:
        build_dataset(output, *made_of)
        return
    found = write_label_piece(output, part, *made_of)
    log(f"piece {part}: {found:,} bins that may be kept")


def _tracks(config: Config, source: Path | None) -> tuple[Track, ...]:
    if source is None:
        raise ConfigError("chromatin.data.tracks: name a track table or a folder of peak files")
    if source.is_dir():
        data = config.chromatin.data
        return tracks_from_folder(source, data.group, data.track_names)
    return read_tracks(source)


def _splits(config: Config, genome: Reference, assembly: Assembly) -> RegionSplits:
    data = config.chromatin.data
    named = find_named(
        config.genome,
        genome.contigs,
        assembly,
        valid_regions=data.valid_regions,
        test_regions=data.test_regions,
    )
    return RegionSplits.from_regions(named)


def _published(config: Config, reference: Path, output: Path, given: dict[str, Path | None]) -> None:
    """The data set of DeepSEA's bundle; what isn't given is looked for among the run's downloads."""
    found: dict[str, Path] = {}
    for role, source in deepsea_sources(config.genome.assembly).items():
        path = given[role] or config.paths.download(source.file)
        if not path.exists():
            raise DataError(f"{path}: no such file; `bigbird-dna fetch {source.key} -o {path}` gets it")
        found[role] = path
    genome, assembly = Reference(reference), find_assembly(config)
    build_deepsea(output, found["bundle"], found["bins"], genome, assembly, read_tracks(found["tracks"]))
