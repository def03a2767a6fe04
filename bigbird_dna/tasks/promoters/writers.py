"""Scored windows as files: tables (TSV, BED, Parquet) and signals (bedGraph, bigWig).

Every writer takes a stream and holds a bounded part of it. Coordinates are 0-based and half-open in all five
formats. The same windows give the same bytes: nothing depends on time or machine.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.disk.outputs import Destination, open_text, provenance_lines
from bigbird_dna.genome.region_filter import Places
from bigbird_dna.genome.sequence import Strand
from bigbird_dna.tasks import bigwig
from bigbird_dna.tasks.bigwig import bedgraph_line
from bigbird_dna.tasks.promoters.scan import ScoredWindow
from bigbird_dna.tasks.promoters.signal import Span, signal_spans

ROW_GROUP = 65_536
"""Rows of a Parquet row group, the part of a scan that its writer holds."""


class ScanInfo(NamedTuple):
    """What the writers say or need to know beside the windows.

    `provenance` goes to the head of the file in this order; `contigs` are lengths in bp; a window has
    `upstream` bp before its TSS position and `downstream` bp from there on; `stride` is in bp as
    well; `strands` are those that were scored. Of signals only what lies in `places` is written (None: all).
    """

    provenance: Mapping[str, str]
    contigs: Mapping[str, int]
    upstream: int
    downstream: int
    stride: int
    strands: Sequence[Strand]
    places: Places | None = None


def write_tsv(path: Destination, windows: Iterable[ScoredWindow], info: ScanInfo) -> None:
    """`#contig start end name score strand note`; score `NA` and note `.` where there is none."""
    header = "#contig\tstart\tend\tname\tscore\tstrand\tnote\n"
    rows = (_place(row, _decimal(row.score)) + f"\t{row.note or '.'}\n" for row in windows)
    _write_lines(path, info, chain([header], rows))


def write_bed(path: Destination, windows: Iterable[ScoredWindow], info: ScanInfo) -> None:
    """BED6+2: the score is 1000 × probability as UCSC asks for; then the probability and the note.

    A window without a score has 0, `NA` and its note.
    """
    header = "#contig\tstart\tend\tname\tscore\tstrand\tprobability\tnote\n"
    rows = (
        _place(row, round(1000 * (row.score or 0))) + f"\t{_decimal(row.score)}\t{row.note or '.'}\n"
        for row in windows
    )
    _write_lines(path, info, chain([header], rows))


def write_bedgraph(path: Destination, windows: Iterable[ScoredWindow], info: ScanInfo) -> None:
    """`contig start end score` of the spans of `signal_spans`."""
    _write_lines(path, info, map(bedgraph_line, _spans(windows, info)))


def write_bigwig(path: Destination, windows: Iterable[ScoredWindow], info: ScanInfo) -> None:
    """The spans of `signal_spans` as bigWig; a `DataError` if no window has a score."""
    assert isinstance(path, Path), "a bigWig is sought in"
    bigwig.write_bigwig(path, _spans(windows, info), info.contigs, "window")


def write_parquet(path: Destination, windows: Iterable[ScoredWindow], info: ScanInfo) -> None:
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
    assert isinstance(path, Path), "a Parquet file ends with its index"
    with pq.ParquetWriter(path, schema) as writer:
        while group := list(islice(rows, ROW_GROUP)):
            values = zip(
                *((r.contig, r.start, r.end, r.name, r.score, r.strand, r.note or None) for r in group),
                strict=True,
            )
            arrays = [pa.array(v, t) for v, t in zip(values, columns.values(), strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


Writer = Callable[[Destination, Iterable[ScoredWindow], ScanInfo], None]

SIGNALS = ("bedgraph", "bigwig")
"""Formats that show the TSS positions of windows, not the windows."""

WRITERS: dict[str, Writer] = {
    "tsv": write_tsv,
    "bed": write_bed,
    "bedgraph": write_bedgraph,
    "bigwig": write_bigwig,
    "parquet": write_parquet,
}


def _write_lines(path: Destination, info: ScanInfo, lines: Iterable[str]) -> None:
    """A text file that begins with the provenance as `##` lines; bgzip if the name ends in `.gz`."""
    with open_text(path) as stream:
        for line in provenance_lines(info.provenance):
            stream.write(f"{line}\n")
        for line in lines:
            stream.write(line)


def _spans(windows: Iterable[ScoredWindow], info: ScanInfo) -> Iterator[Span]:
    spans = signal_spans(
        windows,
        info.contigs,
        upstream=info.upstream,
        downstream=info.downstream,
        stride=info.stride,
        strands=info.strands,
    )
    if info.places is None:
        yield from spans
        return
    for span in spans:
        for start, end in info.places.clipped(span.contig, span.start, span.end):
            yield span._replace(start=start, end=end)


def _place(row: ScoredWindow, score: object) -> str:
    """The six columns of BED, with the score in the words of a format."""
    return f"{row.contig}\t{row.start}\t{row.end}\t{row.name}\t{score}\t{row.strand}"


def _decimal(score: float | None) -> str:
    return "NA" if score is None else f"{score:.6f}"
