"""Data sets of chromatin tracks: bins, windows, fractions.

Which examples fine-tuning learns from, and on which it is measured: all drawn by seed.

Windows around bins as those who compare with models read them: with labels, when they are asked for.

Which bins a chromatin model learns from: all of the training's, or a share of them for learning curves.

The chromatin data set of a configuration: from peaks, or as DeepSEA published it.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from bigbird_dna.config import DEEPSEA, ChromatinTrainingConfig, Config
from bigbird_dna.console import log
from bigbird_dna.disk.shards import find_shard
from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.genome.assembly import Assembly
from bigbird_dna.genome.chromatin.building import build_dataset
from bigbird_dna.genome.chromatin.dataset import ChromatinData
from bigbird_dna.genome.chromatin.deepsea_dataset import build_deepsea
from bigbird_dna.genome.chromatin.label_shards import write_label_shard
from bigbird_dna.genome.chromatin.labels import Labelling
from bigbird_dna.genome.chromatin.regions import RegionSplits
from bigbird_dna.genome.chromatin.tracks import Track, read_tracks, tracks_from_folder
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sources.inputs import chromatin_files, deepsea_sources, find_assembly
from bigbird_dna.genome.splits import find_named

LEAST_EXAMPLES = 5
"""Of each class: a share that leaves fewer says nothing."""


def draw_groups(groups: npt.NDArray[np.int64], share: float, seed: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Which rows belong to the share of the groups that is kept: (N,), for the group of each row (N,).

    Groups, told apart by their numbers, stay whole. Their order is drawn once: of one seed a smaller share is
    part of a larger one. At least one group is kept.
    """
    names = np.unique(groups)
    count = min(max(round(share * len(names)), 1), len(names))
    return np.isin(groups, np.random.default_rng(seed).permutation(names)[:count])


def sample(rows: npt.NDArray[np.intp], count: int, seed: tuple[int, int]) -> npt.NDArray[np.intp]:
    """All rows, or so many of them, in their order, where there are more."""
    if len(rows) <= count:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))


Rows = npt.NDArray[np.intp]

# Axes: N windows, T tracks.


class BinWindows:
    """Windows of `length` bp around some bins of a data set, `rows` (N,)."""

    def __init__(self, data: ChromatinData, reference: Reference, length: int, rows: Rows) -> None:
        self.data, self.reference, self.rows = data, reference, rows
        self._length = length

    @property
    def shape(self) -> tuple[int, int]:
        """(N, T)."""
        return len(self.rows), len(self.data.tracks)

    @property
    def length(self) -> int:
        """bp of a window."""
        return self._length

    def sequences(self, rows: Rows) -> list[str]:
        """The sequences of some windows, N beyond their contig."""
        return [self.reference.fetch(one) for one in self.data.windows(self._length, self.rows[rows])]

    def labels(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """Their labels, (n, T)."""
        return self.data.labels.rows(self.rows[rows])


def checked_window(window: int, size: int) -> int:
    """bp of `--window` around bins of `size` bp; `ConfigError` where a bin can't be in their middle."""
    if window < size or (window - size) % 2:
        raise ConfigError(f"--window {window}: doesn't hold the bin of {size} bp in its middle")
    return window


def training_bins(data: ChromatinData, training: ChromatinTrainingConfig) -> npt.NDArray[np.intp]:
    """The numbers of the bins (n,) in the share `examples` of the training bins, drawn by its seed alone.

    Bins are drawn in stretches of as many places side by side on the genome as a training window is learnt
    from (`neighbours`): of bins drawn one by one, a window of a small share would hold little to learn from,
    and a peak's two halves would count as two examples.

    Raises
    ------
    ConfigError
        No track has five bins with and five without it among those that are left.
    """
    rows, share = data.rows("train"), training.train_fraction
    if share >= 1:
        return rows
    codes = data.bins["contig"].cat.codes.to_numpy().astype(np.int64)[rows]
    stretches = data.bins["start"].to_numpy()[rows] // (data.bin_size * training.bins_per_window)
    groups = codes * (int(stretches.max()) + 1) + stretches
    kept = rows[draw_groups(groups, share, (training.seed, 6))]
    positives = data.labels.positives(kept)
    poor = np.minimum(positives, len(kept) - positives) < LEAST_EXAMPLES
    if poor.all():
        raise ConfigError(
            f"chromatin.training.train_fraction: a share of {share:g} of {len(rows):,} training bins leaves "
            f"{len(kept):,}, and no track with at least {LEAST_EXAMPLES} bins of each class"
        )
    if poor.any():
        log(
            f"warning: {int(poor.sum()):,} of {len(poor):,} tracks have fewer than {LEAST_EXAMPLES} bins of "
            f"a class among the {len(kept):,} training bins that are kept"
        )
    return kept


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
        "3/8": the third of eight pieces with as many bins each, for `merge_shards`; `output` is its file.
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
    part = find_shard(piece, output)
    if config.chromatin.data.tracks == DEEPSEA:
        if part is not None:
            raise UsageError(f"piece {part}: DeepSEA's labels are taken as published, in one piece")
        if blacklist is not None:
            raise UsageError(f"--blacklist {blacklist}: DeepSEA's bins are taken as published")
        _published(config, reference, output, {"bundle": bundle, "bins": bins, "tracks": tracks})
        return
    if bins is not None:
        raise UsageError(f"--deepsea-bins {bins}: goes with --deepsea-bundle only")
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
        min_positives=data.min_positives_train,
        min_held_out=data.min_positives_heldout,
        seed=config.seed,
    )
    splits = _splits(config, genome, assembly)
    made_of = genome, assembly, table, splits, labelling, blacklist or files.get("blacklist")
    if part is None:
        build_dataset(output, *made_of)
        return
    found = write_label_shard(output, part, *made_of)
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
            raise DataError(
                f"{path}: no such file; `bigbird-dna prepare fetch {source.key} -o {path}` gets it"
            )
        found[role] = path
    genome, assembly = Reference(reference), find_assembly(config)
    build_deepsea(output, found["bundle"], found["bins"], genome, assembly, read_tracks(found["tracks"]))
