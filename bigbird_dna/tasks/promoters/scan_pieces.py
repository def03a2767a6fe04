"""Scans in pieces: the scored windows of a piece as lines, and all pieces as the result of one scan."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from bigbird_dna.disk.outputs import provenance
from bigbird_dna.genome.chromatin.peaks import Intervals
from bigbird_dna.genome.region_filter import Places
from bigbird_dna.genome.sequence import Strand
from bigbird_dna.pieces import Piece, PieceFile, all_rows, text_job, write_piece
from bigbird_dna.tasks.formats import SCORE_FORMATS, check_merged, open_destination
from bigbird_dna.tasks.promoters.scan import ScoredWindow
from bigbird_dna.tasks.promoters.writers import SIGNALS, WRITERS, ScanInfo

KIND = "scored windows"


def write_scan_piece(
    output: Path,
    piece: Piece,
    windows: Iterable[ScoredWindow],
    info: ScanInfo,
    format: str,
    content: dict[str, str],
) -> None:
    """Write the windows of a piece of a scan; `content` has the checksums of its files."""
    job = {
        **text_job(info.provenance, content, format),
        "contigs": dict(info.contigs),
        "sizes": [info.upstream, info.downstream, info.stride],
        "strands": list(info.strands),
        "places": _stored(info.places) if format in SIGNALS else None,
    }
    with write_piece(output, KIND, piece, job) as writer:
        writer.write_rows(map(_line, windows))


def merge_scans(pieces: Sequence[PieceFile], output: Path | None) -> int:
    """Write all pieces of a scan as the scan itself would be; gives the number of rows."""
    format, info = pieces[0].described(_described)
    check_merged(format, SCORE_FORMATS, output)
    with open_destination(output, format) as target:
        WRITERS[format](target, all_rows(pieces, _window), info)
    return sum(piece.rows for piece in pieces)


def _described(job: dict[str, Any]) -> tuple[str, ScanInfo]:
    upstream, downstream, stride = job["sizes"]
    places = None if job["places"] is None else _places(job["places"])
    origin = provenance(job["model"], job["command"])
    strands = cast(list[Strand], job["strands"])
    return job["format"], ScanInfo(origin, job["contigs"], upstream, downstream, stride, strands, places)


def _stored(places: Places | None) -> dict[str, list[list[int]] | None] | None:
    if places is None:
        return None
    return {
        contig: None if found is None else [found.starts.tolist(), found.ends.tolist()]
        for contig, found in places.regions.items()
    }


def _places(stored: dict[str, list[list[int]] | None]) -> Places:
    """What was stored; a record goes by its own name there."""
    return Places(
        {
            contig: None if found is None else Intervals(*(np.array(part, np.int64) for part in found))
            for contig, found in stored.items()
        },
        str,
    )


def _line(row: ScoredWindow) -> str:
    score = "" if row.score is None else repr(row.score)  # the very number
    return f"{row.contig}\t{row.start}\t{row.end}\t{row.strand}\t{score}\t{row.note}"


def _window(line: str) -> ScoredWindow:
    contig, start, end, strand, score, note = line.split("\t")
    return ScoredWindow(
        contig, int(start), int(end), cast(Strand, strand), float(score) if score else None, note
    )
