"""Signals as bigWig."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from bigbird_dna.errors import DataError

Value = tuple[str, int, int, float]
"""Contig, start and end (0-based, half-open), and the value there."""

_SPARE = 1 << 20  # bytes: every contig's parts have blocks of their own on a disk


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
    OSError
        A disk has less room than it may take.
    """
    import pybigtools

    with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        spool.writelines(map(bedgraph_line, values))
        if not spool.tell():
            raise DataError(f"no {what} has a score (see max_n), and a bigWig can't be empty")
        _check_room(spool.tell(), path.parent)
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


def _check_room(size: int, directory: Path) -> None:
    """Raise the error of a full disk before one is: pybigtools says nothing of parts that it couldn't write.

    They are in temporary files first, among the system's. Zoom levels of single values can be larger than the
    values; `size` is that of their text.
    """
    for place in (directory, Path(tempfile.gettempdir())):
        if shutil.disk_usage(place).free < 3 * size + _SPARE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _fields(line: str) -> Value:
    contig, start, end, score = line.rstrip("\n").split("\t")
    return contig, int(start), int(end), float(score)
