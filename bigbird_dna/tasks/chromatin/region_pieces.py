"""Predictions of regions in pieces: a piece's regions as lines, and all pieces as one result."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigbird_dna.disk.outputs import provenance
from bigbird_dna.pieces import Piece, PieceFile, all_rows, text_job, write_piece
from bigbird_dna.tasks.chromatin.regions import PredictedRegion, Region
from bigbird_dna.tasks.chromatin.writers import WRITERS, TrackInfo
from bigbird_dna.tasks.formats import TRACK_FORMATS, check_merged, open_destination

KIND = "predicted regions"


def write_region_piece(
    output: Path,
    piece: Piece,
    predicted: Iterable[PredictedRegion],
    info: TrackInfo,
    format: str,
    content: dict[str, str],
) -> None:
    """Write the regions of a piece; `content` has the checksums of the job's files."""
    job = {
        **text_job(info.provenance, content, format),
        "tracks": list(info.names),
        "contigs": dict(info.contigs),
    }
    with write_piece(output, KIND, piece, job) as writer:
        writer.write_rows(_line(row, info.columns) for row in predicted)


def merge_regions(pieces: Sequence[PieceFile], output: Path | None) -> int:
    """Write all pieces as one run would write them; gives the number of rows."""
    format, info = pieces[0].described(_described)
    check_merged(format, TRACK_FORMATS, output)
    with open_destination(output, format) as target:
        WRITERS[format](target, all_rows(pieces, _reader(len(info.names))), info)
    return sum(piece.rows for piece in pieces)


def _described(job: dict[str, Any]) -> tuple[str, TrackInfo]:
    names = job["tracks"]
    origin = provenance(job["model"], job["command"])
    return job["format"], TrackInfo(origin, names, range(len(names)), job["contigs"])


def _line(row: PredictedRegion, columns: Sequence[int]) -> str:
    region, values, note = row
    fields = [region.contig, str(region.start), str(region.end), region.name, note]
    if values is not None:
        fields += map(repr, values[list(columns)].tolist())  # the very numbers
    return "\t".join(fields)


def _reader(tracks: int) -> Callable[[str], PredictedRegion]:
    def read(line: str) -> PredictedRegion:
        contig, start, end, name, note, *fields = line.split("\t")
        region = Region(contig, int(start), int(end), name)
        if not fields and tracks:
            return PredictedRegion(region, None, note)
        if len(fields) != tracks:
            raise ValueError(f"{len(fields)} figures of {tracks} tracks")
        return PredictedRegion(region, np.array([float(field) for field in fields], np.float32), note)

    return read
