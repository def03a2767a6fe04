"""A FASTA file opened for random access by an index that is known to be its own."""

import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import pyfaidx

from bigbird_dna.errors import DataError, error_text
from bigbird_dna.genome.fasta_index import FastaIndex
from bigbird_dna.scratch import scratch_directory

FAULTS = (OSError, ValueError, LookupError, ArithmeticError, RuntimeError, struct.error, zlib.error)
"""What pyfaidx raises for files that are damaged."""


class _BgzfBlock(pyfaidx.BgzfBlock):  # type: ignore[misc]  # its base has no types
    """A block of a bgzip file that begins with its own first byte.

    By pyfaidx's own comparison that byte is looked for at the end of the block before, where it has
    no address if that block holds the 65,536 bytes that the format allows.
    """

    __slots__ = ()

    def __lt__(self, offset: int) -> bool:
        return bool(self.ustart <= offset)


def open_indexed(path: Path, index: FastaIndex) -> Any:
    """The file with just this index, whatever lies beside it: pyfaidx gets it as files, and by a name of the
    ending that it tells compression by."""
    bgzip = index.blocks is not None
    with scratch_directory() as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of an index that is older than its file
        name = directory / ("reference.fa.gz" if bgzip else "reference.fa")
        name.symlink_to(path.absolute())
        indices = [directory / f"index{place}" for place in range(1 + bgzip)]
        for place, content in zip(indices, index.contents(), strict=True):
            place.write_bytes(content)
        try:
            file = pyfaidx.Faidx(
                name,
                indexname=indices[0],
                gzi_indexname=indices[1] if bgzip else None,
                as_raw=True,
                rebuild=False,
                build_index=False,
            )
        except FAULTS as error:
            raise DataError(f"{path}: can't be opened: {error_text(error)}") from None
    if bgzip:
        file.gzi_index = [_BgzfBlock(*block) for block in file.gzi_index]
    return file
