"""Signals as bigWig."""

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from bigbird_dna.errors import DataError

Value = tuple[str, int, int, float]
"""Contig, start and end (0-based, half-open), and the value there."""


def bedgraph_line(value: Value) -> str:
    """A value as a line of bedGraph."""
    contig, start, end, score = value
    return f"{contig}\t{start}\t{end}\t{score:.6f}\n"


def write_bigwig(path: Path, values: Iterable[Value], contigs: Mapping[str, int], what: str) -> None:
    """Write values, in the order of `contigs` and positions and none upon another, with six digits.

    pybigtools prints what goes wrong inside its iterator and carries on, so the values are complete, in a
    temporary file, before it sees the first of them.

    Raises
    ------
    DataError
        There are no values: no `what` has a score.
    """
    import pybigtools

    with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        spool.writelines(map(bedgraph_line, values))
        if not spool.tell():
            raise DataError(f"no {what} has a score (see max_n), and a bigWig can't be empty")
        spool.seek(0)
        named = path.with_name(f"{path.name}.bw")  # the only ending that pybigtools writes to
        try:
            pybigtools.open(str(named), "w").write(dict(contigs), map(_fields, spool))
            # It may also fail in silence; what is not complete then has no valid header.
            with pybigtools.open(str(named)):
                named.replace(path)
        except (KeyboardInterrupt, OSError):
            raise
        except BaseException as error:  # a full disk, for example, is a panic of its Rust code
            raise OSError(f"pybigtools: {error}") from None
        finally:
            named.unlink(missing_ok=True)


def _fields(line: str) -> Value:
    contig, start, end, score = line.rstrip("\n").split("\t")
    return contig, int(start), int(end), float(score)
