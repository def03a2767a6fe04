"""Scored windows as files: tables (TSV, BED, Parquet) and signals (bedGraph, bigWig).

Every writer takes a stream and holds a bounded part of it. Coordinates are 0-based and half-open in all five
formats. The same windows give the same bytes: nothing depends on time or machine.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.errors import DataError
from bigbird_dna.genome.intervals import Strand
from bigbird_dna.outputs import open_text, provenance_lines
from bigbird_dna.tasks.promoters.scan import ScoredWindow
from bigbird_dna.tasks.promoters.signal import Span, signal_spans

ROW_GROUP = 65_536
"""Rows of a Parquet row group, the part of a scan that its writer holds."""


class ScanInfo(NamedTuple):
    """What the writers say or need to know beside the windows.

    `provenance` goes to the head of the file in this order; `contigs` are lengths in bp; a window has
    `upstream` bp before its TSS position and `downstream` bp from there on; `stride` is in bp as
    well; `strands` are those that were scored.
    """

    provenance: Mapping[str, str]
    contigs: Mapping[str, int]
    upstream: int
    downstream: int
    stride: int
    strands: Sequence[Strand]


def write_tsv(path: Path, windows: Iterable[ScoredWindow], info: ScanInfo) -> None:
    """`#contig start end name score strand note`; score `NA` and note `.` where there is none."""
    header = "#contig\tstart\tend\tname\tscore\tstrand\tnote\n"
    rows = (_place(row, _decimal(row.score)) + f"\t{row.note or '.'}\n" for row in windows)
    _write_lines(path, info, chain([header], rows))


def write_bed(path: Path, windows: Iterable[ScoredWindow], info: ScanInfo) -> None:
    """BED6+2: the score is 1000 × probability as UCSC asks for; then the probability and the note.

    A window without a score has 0, `NA` and its note.
    """
    header = "#contig\tstart\tend\tname\tscore\tstrand\tprobability\tnote\n"
    rows = (
        _place(row, round(1000 * (row.score or 0))) + f"\t{_decimal(row.score)}\t{row.note or '.'}\n"
        for row in windows
    )
    _write_lines(path, info, chain([header], rows))


def write_bedgraph(path: Path, windows: Iterable[ScoredWindow], info: ScanInfo) -> None:
    """`contig start end score` of the spans of `signal_spans`."""
    _write_lines(path, info, map(_bedgraph_line, _spans(windows, info)))


def write_bigwig(path: Path, windows: Iterable[ScoredWindow], info: ScanInfo) -> None:
    """The spans of `signal_spans` as bigWig; a `DataError` if no window has a score.

    pybigtools prints what goes wrong inside its iterator and carries on, so the spans are complete, in a
    temporary file, before it sees the first of them.
    """
    import pybigtools

    with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        spool.writelines(map(_bedgraph_line, _spans(windows, info)))
        if not spool.tell():
            raise DataError("no window has a score (see max_n), and a bigWig can't be empty")
        spool.seek(0)
        named = path.with_name(f"{path.name}.bw")  # the only ending that pybigtools writes to
        try:
            pybigtools.open(str(named), "w").write(dict(info.contigs), map(_bedgraph_fields, spool))
            # It may also fail in silence; what is not complete then has no valid header.
            with pybigtools.open(str(named)):
                named.replace(path)
        except (KeyboardInterrupt, OSError):
            raise
        except BaseException as error:  # a full disk, for example, is a panic of its Rust code
            raise OSError(f"pybigtools: {error}") from None
        finally:
            named.unlink(missing_ok=True)


def write_parquet(path: Path, windows: Iterable[ScoredWindow], info: ScanInfo) -> None:
    """The columns of the TSV; score and note are null where there is none; provenance as metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "contig": pa.string(),
        "start": pa.int64(),
        "end": pa.int64(),
        "name": pa.string(),
        "score": pa.float32(),
        "strand": pa.string(),
        "note": pa.string(),
    }
    schema = pa.schema(list(columns.items()), metadata=dict(info.provenance))
    rows = iter(windows)
    with pq.ParquetWriter(path, schema) as writer:
        while group := list(islice(rows, ROW_GROUP)):
            values = zip(
                *((r.contig, r.start, r.end, r.name, r.score, r.strand, r.note or None) for r in group),
                strict=True,
            )
            arrays = [pa.array(v, t) for v, t in zip(values, columns.values(), strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


Writer = Callable[[Path, Iterable[ScoredWindow], ScanInfo], None]

WRITERS: dict[str, Writer] = {
    "tsv": write_tsv,
    "bed": write_bed,
    "bedgraph": write_bedgraph,
    "bigwig": write_bigwig,
    "parquet": write_parquet,
}


def _write_lines(path: Path, info: ScanInfo, lines: Iterable[str]) -> None:
    """A text file that begins with the provenance as `##` lines; bgzip if the name ends in `.gz`."""
    with open_text(path) as stream:
        for line in provenance_lines(info.provenance):
            stream.write(f"{line}\n")
        for line in lines:
            stream.write(line)


def _spans(windows: Iterable[ScoredWindow], info: ScanInfo) -> Iterator[Span]:
    return signal_spans(
        windows,
        info.contigs,
        upstream=info.upstream,
        downstream=info.downstream,
        stride=info.stride,
        strands=info.strands,
    )


def _place(row: ScoredWindow, score: object) -> str:
    """The six columns of BED, with the score in the words of a format."""
    return f"{row.contig}\t{row.start}\t{row.end}\t{row.name}\t{score}\t{row.strand}"


def _decimal(score: float | None) -> str:
    return "NA" if score is None else f"{score:.6f}"


def _bedgraph_line(piece: Span) -> str:
    return f"{piece.contig}\t{piece.start}\t{piece.end}\t{piece.score:.6f}\n"


def _bedgraph_fields(line: str) -> tuple[str, int, int, float]:
    contig, start, end, score = line.rstrip("\n").split("\t")
    return contig, int(start), int(end), float(score)
