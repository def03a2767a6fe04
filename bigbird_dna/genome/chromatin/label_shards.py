"""Chromatin data sets in shards: the labels of a shard's bins, and all shards as one data set."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bigbird_dna.disk.atomic import check_writable
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.disk.shards import Shard, ShardFile, write_shard
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import Assembly
from bigbird_dna.genome.chromatin.building import LabelJob, Labelled, read_job, write_labelled
from bigbird_dna.genome.chromatin.labels import DROPPED, Labelling, PackedLabels, count_bins, label_contigs
from bigbird_dna.genome.chromatin.regions import SPLITS, RegionSplits
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.genome.reference import Reference

KIND = "labelled bins"
_ARRAYS = ("owners", "starts", "splits", "sampled", "packed", "dropped")
_TYPES = [np.dtype(kind) for kind in ("int64", "int64", "int8", "bool", "uint8", "int64")]


def write_label_shard(
    output: Path,
    shard: Shard,
    reference: Reference,
    assembly: Assembly,
    tracks: Sequence[Track],
    splits: RegionSplits,
    labelling: Labelling,
    blacklist: Path | None = None,
) -> int:
    """Label the bins of a shard; arguments and errors as of `build_dataset`. Gives the number of bins.

    Bins are numbered over all contigs, and a shard has those of a stretch of numbers.
    """
    check_writable(output)
    job, placed = read_job(reference, assembly, tracks, splits, labelling, blacklist)
    numbers = shard.rows(count_bins(reference, labelling))
    candidates = label_contigs(reference, placed.peaks, splits, labelling, placed.banned, numbers)
    labelled = Labelled.join(candidates, len(tracks))
    owners, starts, assigned, sampled, labels, dropped = labelled
    values: tuple[npt.NDArray[Any], ...] = (owners, starts, assigned, sampled, labels.packed, dropped)
    with write_shard(output, KIND, shard, _stored(job)) as writer:
        for name, array in zip(_ARRAYS, values, strict=True):
            writer.write_array(name, array)
    return len(labelled.starts)


def merge(shards: Sequence[ShardFile], output: Path) -> int:
    """Write the data set `output` from all shards, as `build_dataset` would; gives the number of bins."""
    check_directory(output, [shard.path for shard in shards])
    job = shards[0].described(_job)
    parts = [_labelled(shard, len(job.contigs), len(job.tracks)) for shard in shards]
    return len(write_labelled(output, job, Labelled.concatenate(parts)))


def _labelled(shard: ShardFile, contigs: int, tracks: int) -> Labelled:
    arrays = shard.arrays(*_ARRAYS)
    owners, starts, splits, sampled, packed, dropped = arrays
    rows = (len(owners) if owners.ndim else 0,)
    shapes = [*[rows] * 4, (*rows, -(-tracks // 8)), (len(DROPPED),)]
    fits = [array.dtype for array in arrays] == _TYPES and [array.shape for array in arrays] == shapes
    for numbers, count in ((owners, contigs), (splits, len(SPLITS))):
        fits = fits and bool(((numbers >= 0) & (numbers < count)).all())
    if not fits:
        raise DataError(f"{shard.path}: damaged: its arrays are not those of labelled bins")
    return Labelled(owners, starts, splits, sampled, PackedLabels(packed, tracks), dropped)


def _stored(job: LabelJob) -> dict[str, Any]:
    # Where peak files lie decides nothing: `sources` has their checksums.
    tracks = [asdict(replace(track, file=None)) for track in job.tracks]
    return {
        "sources": job.sources,
        "labelling": asdict(job.labelling),
        "assembly": job.assembly,
        "regions": job.regions,
        "contigs": list(job.contigs),
        "tracks": [{**track, "extra": dict(track["extra"])} for track in tracks],
    }


def _job(stored: dict[str, Any]) -> LabelJob:
    return LabelJob(
        stored["contigs"],
        [Track(**track) for track in stored["tracks"]],
        Labelling(**stored["labelling"]),
        stored["assembly"],
        stored["regions"],
        stored["sources"],
    )
