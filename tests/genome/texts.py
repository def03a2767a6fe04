"""A reference in memory."""

from typing import Any

from bigbird_dna.genome.intervals import Interval


class Texts:
    """Contigs as texts, with the members of `Reference` that variants need."""

    def __init__(self, **sequences: str) -> None:
        self.sequences = sequences
        self.contigs = {name: len(sequence) for name, sequence in sequences.items()}

    def fetch(self, interval: Interval) -> str:
        sequence = self.sequences[interval.contig]
        places = range(interval.start, interval.end)
        return "".join(sequence[i] if 0 <= i < len(sequence) else "N" for i in places)


def texts(**sequences: str) -> Any:
    return Texts(**sequences)
