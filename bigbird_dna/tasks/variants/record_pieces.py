"""Effects of variants in pieces: a piece has the lines of its records, and all pieces make one result."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from bigbird_dna.genome.vcf import VcfSummary
from bigbird_dna.pieces import Piece, PieceFile, all_rows, text_job, write_piece
from bigbird_dna.tasks.formats import VARIANT_FORMATS, check_merged
from bigbird_dna.tasks.variants.output import variant_output
from bigbird_dna.tasks.variants.writers import WRITERS, Scored, VariantInfo, write_lines

KIND = "effects of variants"


def write_variant_piece(
    output: Path,
    piece: Piece,
    scored: Scored,
    info: VariantInfo,
    format: str,
    summary: VcfSummary,
    content: dict[str, str],
) -> None:
    """Write the lines of a piece's records.

    `summary` is that of all records of the job, `content` has the checksums of its files.
    """
    layout = WRITERS[format]
    job = {
        **text_job(info.origin, content, format),
        "summary": [summary.records, summary.is_sorted, summary.furthest],
        "header": list(layout.header(info)),
    }
    with write_piece(output, KIND, piece, job) as writer:
        writer.write_rows(layout.rows(scored, info))


def merge_variants(pieces: Sequence[PieceFile], output: Path | None) -> int:
    """Write all pieces as one run would write them; gives the number of lines."""
    format, header, summary = pieces[0].described(_described)
    check_merged(format, VARIANT_FORMATS, output)
    with variant_output(output, format, summary) as target:
        write_lines(target, chain(header, all_rows(pieces, str)))
    return sum(piece.rows for piece in pieces)


def _described(job: dict[str, Any]) -> tuple[str, list[str], VcfSummary]:
    records, is_sorted, furthest = job["summary"]
    return job["format"], [str(line) for line in job["header"]], VcfSummary(records, is_sorted, furthest, ())
