"""The report of samples: tables, a figure and one object of figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bigbird_dna.checks import check_at_least_one
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.fasta import stream_fasta
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, base_codes
from bigbird_dna.genome.variants import find_contigs
from bigbird_dna.reporting.samples.chains import ORDERS
from bigbird_dna.reporting.samples.comparing import REAL, SAMPLES, Compared, compare_samples
from bigbird_dna.reporting.samples.figure import samples_figure
from bigbird_dna.reporting.samples.spectra import GC_WINDOW, Codes, Counts, gc_of_windows, spectrum
from bigbird_dna.reporting.tables import write_tsv

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 10
"""Most k: 4 ** k counts are held for everything that is compared."""


def report_samples(
    samples: Path,
    reference: Path,
    contigs: Sequence[str],
    output: Path,
    *,
    exclude: Sequence[str] = (),
    longest: int = 6,
    seed: int = 1,
) -> dict[str, Any]:
    """Write `samples.tsv`, `gc.tsv`, `samples.json` and `samples.svg` to a directory; returns the third.

    Parameters
    ----------
    samples
        FASTA, as `generate` writes it.
    reference
        Indexed FASTA.
    contigs
        What is compared with, by any names that are known for them.
    exclude
        Contigs that Markov chains don't learn from either; they learn from all others.
    longest
        k from 1 to this.

    Raises
    ------
    UsageError
        No contig, or `longest` is out of its range.
    DataError
        A file can't be used, the reference has no such contig, nothing is left to learn from, samples are
        more than half of the contigs, or either has too little known sequence to be compared.
    """
    check_at_least_one({"longest": longest})
    if longest > LONGEST:
        raise UsageError(f"longest {longest}: must be at most {LONGEST}")
    if not contigs:
        raise UsageError("there is no contig to compare with")
    written = _samples(samples)
    held_out, counts = _genome(reference, contigs, exclude)
    source = f"{reference}: {', '.join(contigs)}"
    for name, own in ((f"{samples}", written), (source, held_out)):
        _check_known(name, own, longest)
    compared = compare_samples(written, held_out, counts, longest, seed)
    for k, found in compared.divergences[REAL].items():
        if math.isnan(found.mean):
            raise DataError(
                f"{source}: no stretch that was drawn has a run of {k} known bases: too many are unknown, or "
                "the samples too short"
            )
    figures = _figures(compared, contigs)
    with into_directory(output) as files:
        write_tsv(files / "samples.tsv", _divergences(compared))
        write_tsv(files / "gc.tsv", _contents(compared))
        write_json(files / "samples.json", figures)
        samples_figure(compared, files / "samples.svg")
    return figures


def _check_known(source: str, sequences: Sequence[Codes], longest: int) -> None:
    """`DataError` where there is no GC of stretches, or there are no runs of `longest` known bases."""
    if not len(gc_of_windows(sequences)):
        raise DataError(f"{source}: every stretch of {GC_WINDOW} bp has an N: there is no GC to compare")
    found = next(k for k in range(longest, 0, -1) if spectrum(sequences, k).any())
    if found < longest:
        raise DataError(f"{source}: has no run of {longest} known bases: longest must be at most {found}")


def _samples(path: Path) -> list[Codes]:
    parts: dict[str, list[Codes]] = {}
    for chunk in stream_fasta(path):
        parts.setdefault(chunk.contig, []).append(base_codes(chunk.sequence))
    return [np.concatenate(own) for own in parts.values()]


def _genome(path: Path, contigs: Sequence[str], exclude: Sequence[str]) -> tuple[list[Codes], Counts]:
    """The held-out contigs, and how often runs of six bases are in those that may be learnt from."""
    with Reference(path) as reference:
        wanted, left_out = (find_contigs(names, reference) for names in (contigs, exclude))
        others = [name for name in reference.contigs if name not in {*wanted, *left_out}]
        learnt = (_codes(reference, name) for name in others)
        counts = spectrum(learnt, ORDERS[-1] + 1)
        if not counts.any():
            raise DataError(
                f"{path}: has no contig of {len(ORDERS)} bp or more that is neither compared with nor "
                "excluded: Markov chains have nothing to learn from"
            )
        return [_codes(reference, name) for name in wanted], counts


def _codes(reference: Reference, contig: str) -> Codes:
    return base_codes(reference.fetch(Interval(contig, 0, reference.contigs[contig])))


def _divergences(compared: Compared) -> pd.DataFrame:
    import pandas as pd

    rows = [(name, k, *found) for name, by_k in compared.divergences.items() for k, found in by_k.items()]
    return pd.DataFrame(rows, columns=["sequence", "k", "divergence", "low", "high"])


def _contents(compared: Compared) -> pd.DataFrame:
    import pandas as pd

    rows = [(name, own.bases, own.gc, float(own.windows.std())) for name, own in compared.contents.items()]
    return pd.DataFrame(rows, columns=["sequence", "bases", "gc", "gc_deviation"])


def _figures(compared: Compared, contigs: Sequence[str]) -> dict[str, Any]:
    """What a program wants to know of samples: their divergences beside real sequence's, and GC."""
    return {
        "contigs": [*contigs],
        "gc_window": GC_WINDOW,
        "divergences": {
            name: {str(k): found._asdict() for k, found in by_k.items()}
            for name, by_k in compared.divergences.items()
        },
        **{
            key: {"bases": own.bases, "gc": own.gc, "gc_deviation": float(own.windows.std())}
            for key, own in (("samples", compared.contents[SAMPLES]), ("held_out", compared.contents[REAL]))
        },
    }
