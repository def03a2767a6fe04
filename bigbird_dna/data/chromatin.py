"""Build the chromatin data set of a configuration, from peaks or DeepSEA's files; its windows and subsets."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from bigbird_dna.config.chromatin import (
    DEEPSEA,
)
from bigbird_dna.config.run import Config
from bigbird_dna.errors import ConfigError, DataError, UsageError
from bigbird_dna.genome.chromatin.dataset import (
    ChromatinData,
    build_dataset,
)
from bigbird_dna.genome.chromatin.deepsea import build_deepsea
from bigbird_dna.genome.chromatin.tracks import (
    read_tracks,
    tracks_from_folder,
)
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sources import (
    chromatin_files,
    deepsea_sources,
    find_assembly,
)
from bigbird_dna.genome.splits import Splits

# Axes: N windows, T tracks.

Rows = npt.NDArray[np.intp]


def sample(rows: Rows, count: int, seed: tuple[int, int] | np.random.Generator) -> Rows:
    """Return all rows, or a random sample of `count` rows in their order if there are more."""
    if len(rows) <= count:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))


class BinWindows:
    """Windows of `length` bp around the bins `rows` (N,) of a data set."""

    def __init__(
        self, data: ChromatinData, reference: Reference, length: int, rows: Rows
    ) -> None:
        self.data, self.reference, self.rows, self.length = (
            data,
            reference,
            rows,
            length,
        )
        self.shape = len(rows), len(data.tracks)  # (N, T)

    def sequences(self, rows: Rows) -> list[str]:
        """Return the sequences of windows, with N beyond their contig."""
        return [
            self.reference.fetch(one)
            for one in self.data.windows(self.length, self.rows[rows])
        ]

    def labels(self, rows: Rows) -> npt.NDArray[np.uint8]:
        """Return the labels of windows, (n, T)."""
        return self.data.labels.rows(self.rows[rows])


def checked_window(window: int, size: int) -> int:
    """Return `window` if bins of `size` bp can be at its center, else raise `ConfigError`."""
    if window < size or (window - size) % 2:
        raise ConfigError(
            f"--window {window}: must be the bin size ({size}) plus an even number"
        )
    return window


def prepare_data(
    config: Config,
    reference: Path,
    output: Path,
    *,
    tracks: Path | None = None,
    blacklist: Path | None = None,
    bundle: Path | None = None,
    bins: Path | None = None,
) -> None:
    """Write the data set `output` as configured in the sections `genome` and `chromatin.data`.

    `tracks` (a table or a folder of peaks) and `blacklist` (BED) default to those of the configuration. If
    chromatin.data.tracks is "deepsea", `bundle` and `bins` default to the run's downloads.
    """
    data = config.chromatin.data
    genome, assembly = Reference(reference), find_assembly(config)
    if data.tracks == DEEPSEA:
        if blacklist is not None:
            raise UsageError(
                f"--blacklist {blacklist}: DeepSEA's published bins cannot be filtered"
            )

        paths = {"bundle": bundle, "bins": bins, "tracks": tracks}
        published = {}
        for role, entry in deepsea_sources(config.genome.assembly).items():
            path = paths[role] or config.paths.download(entry.file)
            if not path.exists():
                raise DataError(
                    f"{path}: no such file; run `bigbird-dna prepare fetch {entry.key} -o {path}`"
                )

            published[role] = path

        table = read_tracks(published["tracks"])
        build_deepsea(
            output, published["bundle"], published["bins"], genome, assembly, table
        )
        return

    if bins is not None:
        raise UsageError(f"--deepsea-bins {bins}: needs chromatin.data.tracks: deepsea")

    files = chromatin_files(config)
    source = tracks or files.get("tracks")
    if source is None:
        raise ConfigError(
            "chromatin.data.tracks: needs a track table or a folder of peak files"
        )

    splits = Splits.from_config(
        config.genome,
        genome.contigs,
        assembly,
        valid_regions=data.valid_regions,
        test_regions=data.test_regions,
    )
    if source.is_dir():
        table = tracks_from_folder(source, data.group, data.track_names)
    else:
        table = read_tracks(source)

    build_dataset(
        output,
        genome,
        assembly,
        table,
        splits,
        data,
        seed=config.seed,
        blacklist=blacklist or files.get("blacklist"),
    )
