"""Read the records of a VCF or BCF file with pysam, check their assembly, and declare contigs in a header."""

import gzip
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pysam

from bigbird_dna.disk.atomic import quiet_htslib
from bigbird_dna.errors import DataError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.variants import Note, find_change

CHECKED_RECORDS = 100
"""Number of records after which a VCF of another assembly is recognized, unless it has fewer."""


PREFIX = "BBD_"
"""Prefix of the INFO keys that this software writes; existing keys of the same name are replaced."""

_CONTIG_LINE = re.compile(r"##contig=<(?:[^>]*,)?ID=([^,>]+)")
_UNFIT = re.compile('[,<>"]')  # in names that cannot be declared in a header line


class Variant(NamedTuple):
    """A record of a VCF, or a variant that a Python user gave."""

    contig: str
    start: int  # 0-based; -1 for POS 0, the telomere in VCF
    ref: str
    alts: tuple[str, ...]  # (".",) without an alternative allele
    id: str = "."
    line: str = ""  # of the VCF, as HTSlib writes it

    @property
    def end(self) -> int:
        """Last base of REF + 1."""
        return self.start + len(self.ref)


@contextmanager
def open_vcf(path: Path | str) -> Iterator[pysam.VariantFile]:
    """Open a VCF or BCF, plain, gzip or bgzip; `DataError` if it is another file, or truncated."""
    with quiet_htslib(), ExitStack() as stack:
        try:
            with Path(path).open("rb") as stream:
                start = stream.read(4)

            plain = Path(path)
            if start[:2] == b"\x1f\x8b" and start[3:] != b"\x04":
                # pysam reads bgzip, but no other gzip files
                folder = stack.enter_context(TemporaryDirectory())
                plain = Path(folder, "variants.vcf")
                with gzip.open(path) as packed, plain.open("wb") as unpacked:
                    shutil.copyfileobj(packed, unpacked)

            vcf = stack.enter_context(pysam.VariantFile(str(plain)))
        except FileNotFoundError:
            raise DataError(f"{path}: no such file") from None
        except EOFError:
            raise DataError(f"{path}: the gzip file is truncated") from None
        except (OSError, ValueError, zlib.error):
            raise DataError(
                f"{path}: not a VCF or BCF file: it must begin with ##fileformat=VCF and have a line #CHROM"
            ) from None

        try:
            if vcf.compression == "BGZF":
                vcf.check_truncation()
        except OSError:
            raise DataError(f"{path}: the file is truncated") from None

        yield vcf


def read_vcf(vcf: pysam.VariantFile, name: object) -> Iterator[Variant]:
    """Yield the records of an open file.

    `DataError` for one that is none; it names the number of the record and the position of the one before.
    """
    number = 0
    before = ""
    while True:
        number += 1
        where = f"{name}: record {number}{before}"
        try:
            record = next(vcf, None)
            if record is None:
                return

            contig, pos = record.contig, record.pos
            ref = record.ref or "."
            alts = record.alts or (".",)
            identifier = record.id or "."
            line = str(record).rstrip("\n")
        except (OSError, ValueError):
            raise DataError(
                f"{where}: not a record of a VCF with these columns"
            ) from None

        if not contig or " " in contig:
            raise DataError(f"{where}: CHROM {contig!r} is not a contig name")

        if ref == ".":
            raise DataError(f"{where}: REF is empty")

        if len(alts) > 1 and not {"", "."}.isdisjoint(alts):
            raise DataError(f"{where}: ALT has an empty allele")

        before = f", after {contig}:{pos}"
        yield Variant(contig, record.start, ref, alts, identifier, line)


def check_assembly(
    variants: Iterable[Variant],
    name: object,
    reference: Reference,
    find_contig: Callable[[str], str | None],
) -> None:
    """Raise `DataError` if REF of most of the first variants differs from the reference.

    Only variants whose contig is known to `find_contig`, which maps names to those of the reference, are
    compared.
    """
    compared = differing = 0
    for variant in variants:
        contig = find_contig(variant.contig)
        note = find_change(contig, variant.start, variant.ref, variant.ref, reference)
        if note in (Note.REF_MISMATCH, Note.BEYOND_CONTIG):
            differing += 1
            compared += 1
        elif note == Note.NO_CHANGE:
            compared += 1

        if compared == CHECKED_RECORDS:
            break

    if 2 * differing > compared:
        first = "first " if compared == CHECKED_RECORDS else ""
        raise DataError(
            f"{name}: REF of {differing} of the {first}{compared} records differs from {reference.path}: "
            f"use the reference of the assembly on which the variants were called"
        )


def contig_lines(
    meta: Sequence[str],
    contigs: Mapping[str, int],
    used: Iterable[str],
    find: Callable[[str], str | None],
) -> list[str]:
    """Return the `##contig` lines that the header `meta` lacks, in the order of the reference's contigs.

    A contig is declared under the names in `used`; `find` maps any name to the reference's name.
    """
    declared = {found[1] for line in meta if (found := _CONTIG_LINE.match(line))}
    known = {find(name) for name in declared}
    names: dict[str, list[str]] = {}
    for name in dict.fromkeys(used):
        contig = find(name)
        if contig is not None and name not in declared:
            names.setdefault(contig, []).append(name)

    return [
        f"##contig=<ID={name},length={length}>"
        for contig, length in contigs.items()
        for name in names.get(contig, [] if contig in known else [contig])
        if not _UNFIT.search(name)
    ]
