"""Scans with regressions on positions and k-mers, against their predictions for single windows."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.baselines import scan
from bigbird_dna.baselines.promoters import KmerLogistic, PositionLogistic
from bigbird_dna.baselines.scan import (
    ScanBaseline,
    window_log_odds,
    write_baseline_scans,
)
from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.genome.sequence import base_codes, reverse_complement
from bigbird_dna.scoring.scan import score_inputs, window_inputs

LENGTH, UPSTREAM = 40, 25


def random_bases(rng: np.random.Generator, size: int, unknown: float = 0.0) -> str:
    share = (1 - unknown) / 4
    return "".join(rng.choice(list("ACGTN"), size, p=[share] * 4 + [unknown]))


def fitted(model: ScanBaseline) -> ScanBaseline:
    rng = np.random.default_rng(5)
    model.fit([random_bases(rng, LENGTH, 0.05) for _ in range(60)], np.arange(60) % 2)
    return model


MODELS = [fitted(PositionLogistic(1)), *(fitted(KmerLogistic(k, 1)) for k in (1, 3, 7))]
NAMES = ["position", "1-mer", "3-mer", "7-mer"]


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(LENGTH, 150),
    unknown=st.sampled_from([0, 0.1, 0.7]),
)
def test_log_odds_of_windows_are_those_of_the_regression(
    model: ScanBaseline, seed: int, size: int, unknown: float
) -> None:
    rng = np.random.default_rng(seed)
    text = random_bases(rng, size, unknown)
    starts = np.sort(rng.integers(0, size - LENGTH + 1, 9))
    windows = [text[start : start + LENGTH] for start in starts.tolist()]
    found = window_log_odds(model, base_codes(text), starts, LENGTH)
    for row, read in zip(
        found, (windows, [*map(reverse_complement, windows)]), strict=True
    ):
        assert 1 / (1 + np.exp(-row)) == pytest.approx(model.predict(read), abs=1e-6)


@pytest.mark.parametrize("model", MODELS[::2], ids=NAMES[::2])
def test_a_table_is_that_of_a_scan(
    model: ScanBaseline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if contigs are scanned in parts; contigs that are too short have no rows."""
    monkeypatch.setattr(scan, "_WINDOWS_AT_ONCE", 7)
    rng, fasta = np.random.default_rng(2), tmp_path / "genome.fa.gz"
    long = random_bases(rng, 333) + "N" * 90 + random_bases(rng, 200)
    write_fasta(fasta, [("a", long), ("b", random_bases(rng, LENGTH)), ("c", "ACGT")])
    sizes = {"upstream": UPSTREAM, "stride": 6}
    write_baseline_scans({tmp_path / "x.tsv": model}, fasta, length=LENGTH, **sizes)
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
