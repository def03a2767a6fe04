"""Write small promoter sets as FASTA, for the results of models of custom sequences.

`python -m docs.generators.promoter_sets PREFIX 600 1800 --windows results/yeast intergenic` draws 600
promoters and 1,800 negatives of the data set that `prepare promoter-windows` made in `results/yeast`. Without
`--windows`, sequences are random, of different lengths, and only promoters have a motif, at any position.
Both write PREFIX_promoters.fa.gz and PREFIX_others.fa.gz.
"""

import argparse
from pathlib import Path

import numpy as np

from bigbird_dna.data.promoter_windows import read_windows, window_sequences
from bigbird_dna.genome.reference import Reference, write_fasta

MOTIF = "TGACTCA"
LENGTHS = (100, 160)  # bp, shortest and longest


def drawn(
    results: Path, negative_set: str, label: int, count: int, rng: np.random.Generator
) -> list[str]:
    """Sequences of random windows with a label, in the order of the data set."""
    data = read_windows(results / "promoters", negative_set)
    rows = rng.permutation(np.flatnonzero(data.labels == label))[:count]
    with Reference(results / "genome/reference.fa.gz") as genome:
        return window_sequences(genome, data.rows.iloc[np.sort(rows)], 1)


def simulated(label: int, count: int, rng: np.random.Generator) -> list[str]:
    """Random sequences; with label 1, each has the motif at a random place."""
    sequences = []
    for length in rng.integers(LENGTHS[0], LENGTHS[1] + 1, count).tolist():
        bases = rng.choice(list("ACGT"), length)
        for start in rng.integers(0, length - len(MOTIF) + 1, label).tolist():
            bases[start : start + len(MOTIF)] = list(MOTIF)
        sequences.append("".join(bases.tolist()))
    return sequences


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(prog="python -m docs.generators.promoter_sets")
    parser.add_argument("prefix", help="of the two files, such as yeast")
    parser.add_argument("promoters", type=int, help="number of promoters")
    parser.add_argument("others", type=int, help="number of other sequences")
    parser.add_argument("--windows", nargs=2, metavar=("RESULTS", "NEGATIVE_SET"))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    for label, name, count in (
        (1, "promoter", given.promoters),
        (0, "other", given.others),
    ):
        if given.windows is None:
            sequences = simulated(label, count, rng)
        else:
            sequences = drawn(
                Path(given.windows[0]), given.windows[1], label, count, rng
            )
        records = [
            (f"{name}_{number}", one) for number, one in enumerate(sequences, start=1)
        ]
        write_fasta(Path(f"{given.prefix}_{name}s.fa.gz"), records)


if __name__ == "__main__":
    main()
