"""Scans with regressions on positions and k-mers, against their predictions for single windows."""

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
from bigbird_dna.baselines.scan import write_baseline_scan
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.scoring.scan import score_inputs, window_inputs

LENGTH, UPSTREAM = 40, 25


def random_bases(rng: np.random.Generator, size: int, unknown: float = 0.0) -> str:
    share = (1 - unknown) / 4
    return "".join(rng.choice(list("ACGTN"), size, p=[share] * 4 + [unknown]))


def fitted(model: LogisticBaseline) -> LogisticBaseline:
    rng = np.random.default_rng(5)
    model.fit([random_bases(rng, LENGTH, 0.05) for _ in range(60)], np.arange(60) % 2)
    return model


@pytest.mark.parametrize("model", [position_regression(1), kmer_regression(3, 1)])
def test_a_table_is_that_of_a_scan(
    model: LogisticBaseline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if contigs are scanned in parts; contigs that are too short have no rows."""
    monkeypatch.setattr(scan, "_WINDOWS_AT_ONCE", 7)
    rng, fasta = np.random.default_rng(2), tmp_path / "genome.fa.gz"
    long = random_bases(rng, 333) + "N" * 90 + random_bases(rng, 200)
    write_fasta(fasta, [("a", long), ("b", random_bases(rng, LENGTH)), ("c", "ACGT")])
    sizes = {"upstream": UPSTREAM, "stride": 6}
    fitted(model)
    with Reference(fasta) as genome:
        write_baseline_scan(tmp_path / "x.tsv", model, genome, length=LENGTH, **sizes)
    table = pd.read_csv(tmp_path / "x.tsv", sep="\t", keep_default_na=False)
    inputs = window_inputs(fasta, "abc", downstream=LENGTH - UPSTREAM, **sizes)
    expected = [
        row
        for rows in score_inputs(inputs, model.predict, 32)
        for row in rows
        if row.contig != "c"
    ]
    assert len(table) == len(expected)
    for found, row in zip(table.itertuples(index=False), expected, strict=True):
        assert (
            found.contig,
            found.start,
            found.end,
            found.strand,
            found.tss,
        ) == (
            row.contig,
            row.start,
            row.end,
            row.strand,
            row.tss,
        )
        assert found.note == (row.note or ".")
        score = (
            None if found.score == "NA" else pytest.approx(float(found.score), abs=1e-6)
        )
        assert row.score == score
    assert "NA" in set(table["score"])
