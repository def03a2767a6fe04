"""All pieces of a job as the result of the whole: `bigbird_dna.merge_pieces` and the command of that name."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.disk.outputs import check_output, named_output
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.chromatin import label_pieces
from bigbird_dna.pieces import PieceFile, read_pieces
from bigbird_dna.tasks.chromatin import bin_pieces, region_pieces
from bigbird_dna.tasks.promoters import scan_pieces
from bigbird_dna.tasks.variants import record_pieces


class MergeCounts(NamedTuple):
    """How many pieces and rows there were, and what the rows are of."""

    pieces: int
    rows: int
    kind: str


Merge = Callable[[Sequence[PieceFile], Path | None], int]

_TEXTS: Mapping[str, Merge] = {
    scan_pieces.KIND: scan_pieces.merge_scans,
    region_pieces.KIND: region_pieces.merge_regions,
    record_pieces.KIND: record_pieces.merge_variants,
}
_FILES: Mapping[str, Callable[[Sequence[PieceFile], Path], int]] = {
    bin_pieces.KIND: bin_pieces.merge_bins,
    label_pieces.KIND: label_pieces.merge_labels,
}


def merge_pieces(pieces: Sequence[Path | str], output: Path | str | None = None) -> MergeCounts:
    """Put the pieces of a job together, to the bytes that the whole job would have written.

    Parameters
    ----------
    pieces
        What `score_promoters`, `predict_tracks` or `score_variants` wrote with `piece`, or the commands
        `evaluate test-bins` and `prepare chromatin` with `--shard`: all pieces of one job, in any order.
    output
        File to write, whole or not at all, in the format that the pieces were made for; of `score_variants`
        with its index. None or "-": standard output, for text. Of `prepare chromatin` a directory.

    Raises
    ------
    UsageError
        The output can't be written, or its ending says another format.
    DataError
        A file is not a piece, or damaged; the pieces are not of one job (another model, reference, option or
        number of pieces); one is missing or there twice; or the whole job would have ended with an error, as
        of a bigWig without any score.
    """
    target = named_output(output)
    found = read_pieces(pieces)
    kind = found[0].kind
    if kind in _TEXTS:
        check_output(target, [piece.path for piece in found])
        return MergeCounts(len(found), _TEXTS[kind](found, target), kind)
    if kind not in _FILES:
        raise DataError(f"{found[0].path}: is a piece of {kind}, which this version doesn't know")
    if target is None:
        raise UsageError(f"{kind} can't go to standard output: name what is to be written with -o")
    return MergeCounts(len(found), _FILES[kind](found, target), kind)
