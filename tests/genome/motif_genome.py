"""A genome whose two tracks are two motifs: what a small model can learn in seconds."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.genome.sequence import reverse_complement

MOTIFS = {"one": "GATTACAGATTACA", "two": "CCGGTATACCGGAT"}
PEAK = 40  # bp, the motif in its middle


def write_motif_genome(
    home: Path,
    lengths: Mapping[str, int],
    *,
    spacing: int,
    both_strands: bool = False,
    gaps: Mapping[str, tuple[int, int]] | None = None,
) -> None:
    """Write `reference.fa.gz`, and `peaks/` with a BED file of peaks of 40 bp for each motif, into `home`.

    The motifs take turns, one every `spacing` bp of random bases, with `both_strands` half of them the
    other way round. `gaps` are runs of N.
    """
    rng = np.random.default_rng(0)
    peaks: dict[str, list[str]] = {name: [] for name in MOTIFS}
    with (home / "genome.fa").open("w") as stream:
        for contig, length in lengths.items():
            letters = rng.choice(list("ACGT"), length)
            for number, start in enumerate(range(60, length - 60, spacing)):
                name = list(MOTIFS)[number % 2]
                motif = MOTIFS[name]
                if both_strands and rng.random() < 0.5:
                    motif = reverse_complement(motif)
                letters[start : start + len(motif)] = list(motif)
                first = start - (PEAK - len(motif)) // 2
                peaks[name].append(f"{contig}\t{first}\t{first + PEAK}\n")
            if gaps and contig in gaps:
                letters[slice(*gaps[contig])] = "N"
            stream.write(f">{contig}\n{''.join(letters)}\n")
    prepare_reference(home / "genome.fa", home / "reference.fa.gz")
    (home / "peaks").mkdir()
    for name, lines in peaks.items():
        (home / f"peaks/{name}.bed").write_text("".join(lines))
