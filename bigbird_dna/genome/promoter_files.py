"""Files of transcription start sites: EPDnew's formats, BED, and annotations.

EPDnew publishes the same promoters in three formats with three conventions. SGA and FPS give the start site
itself, counted from 1. Its BED, of eight columns, gives 60 bp around it, of which the thick part begins (on
"-": ends) at the start site; the interval's own ends are not the site. Other BED files, of six or of twelve
columns, have an interval that begins (on "-": ends) there.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.console import log
from bigbird_dna.errors import DataError
from bigbird_dna.genome.annotation import read_annotation
from bigbird_dna.genome.columns import append_locus, position, site, split_columns, strand
from bigbird_dna.genome.compression import read_lines
from bigbird_dna.genome.fields import quoted
from bigbird_dna.genome.intervals import Locus

# FP, a name of up to 20 columns, flags, a data bank, and the site as
# sequence:topology-strand-position.
_FPS_ENTRY = re.compile(
    r"FP\s{3}(?P<name>.{20}):\S{2}\s+[^\s:]+:(?P<contig>\S+)\s+"
    r"[0-9](?P<strand>[+-])\s*(?P<position>[0-9]+);"
)
_GIVEN = "as the file gives it"
_INTERVAL = "the 5' end of the interval"
_THICK = "the 5' end of the interval's thick part (EPD's BED)"


class _Site(NamedTuple):
    """A start site, and the rule that found it."""

    locus: Locus
    rule: str


def read_promoters(path: Path) -> list[Locus]:
    """Read start sites, in file order, contigs named as in the file; the log says by which rule.

    Parameters
    ----------
    path
        An `.sga` or `.fps` file of EPDnew; `.bed`, of 8 to 11 columns by EPDnew's rule, else the intervals'
        5' ends; `.gff3`, `.gff` or `.gtf`, see `read_annotation`. Each possibly with `.gz`.

    Raises
    ------
    DataError
        The format is unknown, the file can't be read, holds no promoter or more than two million, or a
        line is malformed.
    """
    path = Path(path)
    suffix = (path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix).lower()
    if suffix not in _PARSERS and suffix not in _ANNOTATIONS:
        raise DataError(f"{path}: promoters come as .sga, .fps, .bed, .gff3 or .gtf (also .gz)")
    found = read_annotation(path) if suffix in _ANNOTATIONS else _read_sites(path, _PARSERS[suffix])
    loci: list[Locus] = []
    rules: Counter[str] = Counter()
    for number, locus, rule in found:
        append_locus(loci, locus, f"{path}: line {number}")
        rules[rule] += 1
    if not loci:
        raise DataError(f"{path}: no promoter in the file")
    text = ", ".join(f"{rule} ({count:,})" for rule, count in rules.most_common())
    log(f"{path}: the start site is {text}")
    return loci


def _read_sites(path: Path, parse: Callable[[str], _Site | None]) -> Iterator[tuple[int, Locus, str]]:
    for number, line in read_lines(path):
        try:
            found = parse(line)
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}") from None
        if found is not None:
            yield number, *found


def _parse_sga(line: str) -> _Site | None:
    if not line.strip() or line.startswith("#"):
        return None
    contig, feature, place, sense, _count, *name = split_columns(line, 5)
    return _Site(Locus(contig, site(place), strand(sense), name[0] if name else feature), _GIVEN)


def _parse_bed(line: str) -> _Site | None:
    if not line.strip() or line.startswith(("#", "track", "browser")):
        return None
    contig, first, last, name, _score, sense, *rest = split_columns(line, 6)
    start, end, rule = position(first), position(last), _INTERVAL
    if start >= end:
        raise ValueError(f"interval {start}-{end} has no bases (starts are 0-based, ends exclusive)")
    if 2 <= len(rest) < 6 and end - start > 1:
        thick_start, thick_end = position(rest[0]), position(rest[1])
        if not start <= thick_start < thick_end <= end:
            raise ValueError(f"thick part {thick_start}-{thick_end} is not inside {start}-{end}")
        start, end, rule = thick_start, thick_end, _THICK
    own = strand(sense)
    return _Site(Locus(contig, start if own == "+" else end - 1, own, name), rule)


def _parse_fps(line: str) -> _Site | None:
    if not line.startswith("FP"):
        if re.match(r"[A-Z]{2}(\s|$)|//|\s*$", line):  # other lines of the format's family
            return None
        raise ValueError(f"not a line of an FPS file: {quoted(line, 40)}")
    entry = _FPS_ENTRY.match(line)
    if entry is None:
        raise ValueError(f"not an FPS entry: {quoted(line, 40)}")
    contig, name = entry["contig"], entry["name"].strip()
    return _Site(Locus(contig, site(entry["position"]), strand(entry["strand"]), name), _GIVEN)


_ANNOTATIONS = frozenset({".gff3", ".gff", ".gtf"})
_PARSERS: dict[str, Callable[[str], _Site | None]] = {
    ".sga": _parse_sga,
    ".bed": _parse_bed,
    ".fps": _parse_fps,
}
