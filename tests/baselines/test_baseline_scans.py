"""Scans with baselines at every base, against their predictions for single windows."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.baselines import scan
from bigbird_dna.baselines.promoters import (
    LogisticBaseline,
    kmer_regression,
    position_regression,
)
from bigbird_dna.baselines.scan import (
    CPG_WINDOW,
    WindowScores,
    cpg_scores,
    kmer_scores,
    position_scores,
    scores_of_windows,
    write_scan,
)
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.sequence import Interval, fraction_n, tss_position

LENGTH, UPSTREAM, STRIDE = 40, 25, 7


def random_bases(rng: np.random.Generator, size: int, unknown: float = 0.0) -> str:
    share = (1 - unknown) / 4
    return "".join(rng.choice(list("ACGTN"), size, p=[share] * 4 + [unknown]))


def fitted(model: LogisticBaseline) -> LogisticBaseline:
    rng = np.random.default_rng(5)
    windows = [random_bases(rng, LENGTH, 0.05) for _ in range(60)]
    return model.fit(windows, np.arange(60) % 2)


POSITION, KMER = fitted(position_regression(1)), fitted(kmer_regression(3, 1))


def cpg_density(windows: list[str]) -> list[float]:
    return [text.count("CG") / (len(text) - 1) for text in windows]


@pytest.mark.parametrize(
    ("scores", "predict", "length", "upstream"),
    [
        (position_scores(POSITION), POSITION.predict, LENGTH, UPSTREAM),
        (kmer_scores(KMER, LENGTH), KMER.predict, LENGTH, UPSTREAM),
        (cpg_scores, cpg_density, CPG_WINDOW, CPG_WINDOW // 2),
    ],
    ids=["position", "k-mer", "cpg"],
)
def test_a_bin_has_the_highest_score_of_its_windows(
    scores: WindowScores,
    predict: Callable[[list[str]], list[float]],
    length: int,
    upstream: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if contigs are scanned in parts; windows beyond a contig or with many N do not count."""
    monkeypatch.setattr(scan, "_BASES_AT_ONCE", 150)
    rng, fasta = np.random.default_rng(2), tmp_path / "genome.fa.gz"
    long = random_bases(rng, 633) + "N" * 90 + random_bases(rng, 500, 0.02)
    write_fasta(fasta, [("a", long), ("b", random_bases(rng, length)), ("c", "ACGT")])
    expected: dict[tuple[str, int, str], dict[int, float]] = defaultdict(dict)
    with Reference(fasta) as genome:
        of_bases = scores_of_windows(genome, scores, upstream=upstream, length=length)
        write_scan(tmp_path / "x.tsv", genome, of_bases, STRIDE)
        for contig, size in genome.contigs.items():
            for start in range(size - length + 1):
                for strand in ("+", "-"):
                    window = Interval(contig, start, start + length, strand)
                    text = genome.fetch(window)
                    if fraction_n(text) > 0.25:
                        continue
                    tss = tss_position(start, start + length, strand, upstream)
                    key = contig, tss // STRIDE * STRIDE, strand
                    expected[key][tss] = float(predict([text])[0])

    table = pd.read_csv(tmp_path / "x.tsv", sep="\t", keep_default_na=False)
    rows = {(row.contig, row.start, row.strand): row for row in table.itertuples()}
    assert len(rows) == len(table) and rows.keys() == expected.keys()
    for key, by_tss in expected.items():
        row, best = rows[key], max(by_tss.values())
        assert row.score == pytest.approx(best, abs=1e-6)
        assert by_tss[row.tss] == pytest.approx(best, abs=1e-9)
        assert row.end - row.start <= STRIDE
        if predict is cpg_density:  # of equal scores, the first to be transcribed
            ties = [tss for tss, score in by_tss.items() if score == best]
            assert row.tss == (min(ties) if row.strand == "+" else max(ties))
