"""Places on a genome: stretches (`Interval`) and single bases (`Locus`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Strand = Literal["+", "-"]

OPPOSITE: dict[Strand, Strand] = {"+": "-", "-": "+"}


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """Bases `[start, end)` of a contig, 0-based on the forward strand.

    `start` may be negative and `end` beyond the contig: a window at a contig's edge is still a
    window, and what lies outside reads as N. `strand` says in which direction the sequence is read.
    """

    contig: str
    start: int
    end: int
    strand: Strand = "+"

    def __post_init__(self) -> None:
        if self.start > self.end:
            raise ValueError(f"interval {self} ends before it starts")
        if self.strand not in OPPOSITE:
            raise ValueError(f"strand must be '+' or '-', not {self.strand!r}")

    def __len__(self) -> int:
        return self.end - self.start

    def __bool__(self) -> bool:
        """Always true: an interval of no bases is still a place."""
        return True

    def __str__(self) -> str:
        return f"{self.contig}:{self.start}-{self.end}({self.strand})"


@dataclass(frozen=True, slots=True, order=True)
class Locus:
    """One base of a contig, 0-based, with the strand it is read on and a name, such as a TSS."""

    contig: str
    position: int
    strand: Strand
    name: str

    def __post_init__(self) -> None:
        if self.strand not in OPPOSITE:
            raise ValueError(f"strand must be '+' or '-', not {self.strand!r}")


def whole_contigs(lengths: Mapping[str, int]) -> list[Interval]:
    """Contigs, name → bp, each as one stretch from end to end."""
    return [Interval(contig, 0, length) for contig, length in lengths.items()]
