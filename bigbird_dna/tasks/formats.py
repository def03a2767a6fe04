"""What the commands that use a model write, and where; light to import, for help texts."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from bigbird_dna.checks import check_choice
from bigbird_dna.disk.outputs import Destination, destination, format_for, text_destination
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.sequence import Strand

Formats = Mapping[str, tuple[str, ...]]
"""Format → the endings of files that stand for it."""

SCORE_FORMATS: Formats = {
    "tsv": (".tsv", ".txt"),
    "bed": (".bed",),
    "bedgraph": (".bedgraph", ".bdg", ".bg"),
    "bigwig": (".bigwig", ".bw"),
    "parquet": (".parquet",),
}
TRACK_FORMATS: Formats = {
    "tsv": (".tsv", ".txt"),
    "bed": (".bed",),
    "bigwig": (".bigwig", ".bw"),
    "parquet": (".parquet",),
}
BINARY_FORMATS = ("bigwig", "parquet")
VARIANT_FORMATS: Formats = {"vcf": (".vcf",), "tsv": (".tsv", ".txt")}

_BROWSERS_FORMATS = ("bed", "bedgraph")
# Of lines there. UCSC reads the words `track` and `browser`, htsjdk (and so IGV) also `track_7`.
_HEADERS = ("#", "track", "browser")

STRANDS: Mapping[str, tuple[Strand, ...]] = {"both": ("+", "-"), "+": ("+",), "-": ("-",)}


def check_format(format: str, formats: Formats, output: Path | None) -> None:
    """`UsageError` if there is no such format, or it can't be written there."""
    check_choice("format", format, formats)
    if format in BINARY_FORMATS:
        if output is None:
            raise UsageError(f"format {format} can't go to standard output: name a file with -o")
        if output.suffix == ".gz":
            raise UsageError(f"{output}: {format} is compressed: leave out .gz")


def check_contig(contig: str, format: str, where: Path | str) -> None:
    """`DataError` if the rows of a contig would be taken for headers, as of BED `track …`."""
    if format in _BROWSERS_FORMATS and contig.startswith(_HEADERS):
        raise DataError(
            f"{where}: contig {contig!r} can't be written as {format}: genome browsers would take its lines "
            "for headers; rename it, or write tsv or parquet"
        )


def check_merged(format: str, formats: Formats, output: Path | None) -> None:
    """`UsageError` if what pieces were made for is not what `output` would be, or can't be written there."""
    check_choice("format", format, formats)
    if (said := format_for(output, formats, format)) != format:
        raise UsageError(f"{output}: its ending says {said}, but the pieces were made with --format {format}")
    check_format(format, formats, output)


def open_destination(output: Path | None, format: str) -> AbstractContextManager[Destination]:
    """Where a writer of a format writes; text goes to standard output, pipes and devices as it is made."""
    return destination(output, format) if format in BINARY_FORMATS else text_destination(output)
