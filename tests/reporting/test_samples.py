"""The report of samples: spectra by hand, rulers that mean what they say, and files."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.genome.sequence import base_codes
from bigbird_dna.reporting.samples import (
    LENGTH,
    chain_samples,
    divergence,
    draw_segments,
    gc,
    gc_of_windows,
    report_samples,
    shortened_counts,
    spectrum,
)
from tests.baselines.sources import Source
from tests.golden.messages import fails

LETTERS = np.array(list("ACGTN"))
SOURCE = Source(2, seed=3)


@given(st.lists(st.text("ACGTN", max_size=30), max_size=4), st.integers(1, 4))
def test_runs_are_those_that_one_counts(texts: list[str], k: int) -> None:
    counted = Counter(
        text[i : i + k] for text in texts for i in range(len(text) - k + 1)
    )
    found = spectrum([base_codes(text) for text in texts], k)
    assert found.sum() == sum(
        number for run, number in counted.items() if "N" not in run
    )
    for run, number in counted.items():
        if "N" not in run:
            assert found[int(run.translate(str.maketrans("ACGT", "0123")), 4)] == number


def test_divergence_is_shannon_s() -> None:
    one, other = np.array([3, 1, 0, 0]), np.array([0, 0, 5, 5])
    assert divergence(one, 7 * one) == 0 and divergence(one, other) == pytest.approx(1)
    assert divergence(np.array([1, 1, 0, 0]), np.array([1, 0, 0, 0])) == pytest.approx(
        0.311278, abs=1e-6
    )
    assert divergence(one, np.array([1, 1, 1, 1])) == divergence(
        np.array([1, 1, 1, 1]), one
    )
    none = np.zeros(4, int)
    assert all(
        math.isnan(divergence(*pair))
        for pair in ((one, none), (none, one), (none, none))
    )


def test_chains_have_as_many_bases_as_are_asked_for() -> None:
    counts = spectrum([SOURCE.sample(5000, 1)], 2)
    for bases in (1, 999, 1000, 1001, 3000, 20_345):
        chains = chain_samples(counts, 1, bases, np.random.default_rng(1))
        assert sum(map(len, chains)) == bases
        assert all(len(one) == LENGTH for one in chains[:-1])


def test_gc_is_of_known_bases() -> None:
    texts = [base_codes("G" * 100 + "A" * 300), base_codes("CN"), base_codes("GT")]
    assert gc(texts) == pytest.approx(102 / 403)
    assert gc_of_windows(texts).tolist() == [0.5, 0, 0.5]  # what has an N is left out


def test_a_chain_of_the_source_s_order_has_its_runs() -> None:
    learned = spectrum([SOURCE.sample(400_000, 1)], 6)
    of_order = shortened_counts(learned, 6)
    assert [len(counts) for counts in of_order] == [4**n for n in range(1, 7)]
    true = spectrum([SOURCE.sample(400_000, 2)], 4)
    apart = [
        divergence(
            spectrum(
                chain_samples(
                    of_order[order], order, 200_000, np.random.default_rng(1)
                ),
                4,
            ),
            true,
        )
        for order in range(4)
    ]
    assert apart[0] > 10 * apart[2] and apart[1] > 3 * apart[2] and apart[2] < 0.001
    assert apart[3] == pytest.approx(apart[2], abs=5e-4)


def test_drawn_segments_share_no_base() -> None:
    contigs = [np.arange(50), np.arange(50, 80), np.arange(80, 200)]
    for seed in range(50):
        drawn = draw_segments(contigs, [30, 20, 40, 10], np.random.default_rng(seed))
        places = np.concatenate(drawn)
        assert len(places) == len({*places.tolist()}) == 100
        assert all((np.diff(one) == 1).all() for one in drawn)


def fasta(path: Path, **contigs: np.ndarray) -> Path:
    write_fasta(
        path, [(name, "".join(LETTERS[codes])) for name, codes in contigs.items()]
    )
    return path


@pytest.fixture(scope="module")
def genome(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("genome")
    return fasta(
        home / "genome.fa.gz",
        one=SOURCE.sample(150_000, 1),
        two=SOURCE.sample(60_000, 2),
    )


def test_true_sequence_is_as_near_as_true_sequence_and_other_is_not(
    genome: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    true = {f"s{n}": SOURCE.sample(2000, 10 + n) for n in range(10)}
    false = {f"s{n}": rng.integers(0, 4, 2000) for n in range(10)}
    found = {}
    for name, samples in (("true", true), ("false", false)):
        path = fasta(tmp_path / f"{name}.fa.gz", **samples)
        found[name] = report_samples(path, genome, ["two"], tmp_path / name, longest=4)
        table = pd.read_csv(tmp_path / name / "samples.tsv", sep="\t")
        assert list(table) == ["sequence", "k", "divergence", "low", "high"]
        chains = (f"Markov chain of order {order}" for order in range(6))
        assert {*table["sequence"]} == {"samples", "held-out sequence", *chains}
        assert (table["low"] <= table["divergence"]).all() and (
            table["divergence"] <= table["high"]
        ).all()
        assert json.loads((tmp_path / name / "samples.json").read_text()) == found[name]
        contents = pd.read_csv(tmp_path / name / "gc.tsv", sep="\t").set_index(
            "sequence"
        )
        assert contents.loc["samples", "bases"] == 20_000
        assert (tmp_path / name / "samples.svg").read_text().startswith("<?xml")
    for k in "234":
        real = found["true"]["divergences"]["held-out sequence"][k]["mean"]
        assert found["true"]["divergences"]["samples"][k]["mean"] < 2 * real
        assert found["false"]["divergences"]["samples"][k]["mean"] > 20 * real
        chain = found["true"]["divergences"]["Markov chain of order 2"][k]["mean"]
        assert chain < 2 * real
    again = report_samples(
        tmp_path / "true.fa.gz", genome, ["two"], tmp_path / "again", longest=4
    )
    assert again == found["true"]
    for name in ("samples.tsv", "gc.tsv", "samples.json", "samples.svg"):
        assert (tmp_path / "again" / name).read_bytes() == (
            tmp_path / "true" / name
        ).read_bytes()


def unknown(codes: np.ndarray, every: int) -> np.ndarray:
    return np.where(np.arange(len(codes)) % every == every - 1, 4, codes)


SAMPLES = {
    "small": {"s": SOURCE.sample(500, 1)},
    "large": {"s": SOURCE.sample(31_000, 1)},
    "dotted": {"s": unknown(SOURCE.sample(500, 1), 150)},
    "empty": {"s": np.full(500, 4)},
    "short": {"s": SOURCE.sample(5, 1), "t": SOURCE.sample(4, 2)},
    "masked": {
        "one": SOURCE.sample(9000, 1),
        "two": unknown(SOURCE.sample(6000, 2), 150),
    },
}


@pytest.mark.parametrize(
    ("samples", "contigs", "options", "named"),
    [
        ("large", ["two"], {}, "60,000"),
        ("small", ["three"], {}, "'three'"),
        ("small", ["one", "two"], {}, "genome.fa.gz"),
        ("small", ["two"], {"exclude": ["one"]}, "genome.fa.gz"),
        ("small", ["two"], {"longest": 11}, "11"),
        ("small", [], {}, ""),
        ("dotted", ["two"], {}, "dotted.fa.gz"),
        ("empty", ["two"], {}, "empty.fa.gz"),
        ("small", ["two"], {"reference": "masked"}, "masked.fa.gz: two"),
        ("short", ["two"], {}, "at most 5"),
    ],
)
def test_what_cannot_be_compared(
    genome: Path,
    tmp_path: Path,
    samples: str,
    contigs: list[str],
    options: dict[str, Any],
    named: str,
) -> None:
    made = {
        name: fasta(tmp_path / f"{name}.fa.gz", **contents)
        for name, contents in SAMPLES.items()
    }
    reference = made.get(options.get("reference", ""), genome)
    options = {name: value for name, value in options.items() if name != "reference"}
    with fails(UsageError if "longest" in options or not contigs else DataError, named):
        report_samples(made[samples], reference, contigs, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_short_samples_have_short_runs(genome: Path, tmp_path: Path) -> None:
    short = fasta(tmp_path / "short.fa.gz", **SAMPLES["short"])
    found = report_samples(short, genome, ["two"], tmp_path / "out", longest=5)
    assert found["divergences"]["samples"]["5"]["mean"] < 1
    assert (
        pd.read_csv(tmp_path / "out/gc.tsv", sep="\t")
        .set_index("sequence")["bases"]
        .nunique()
        == 2
    )


def test_draws_without_known_runs_do_not_count(tmp_path: Path) -> None:
    """Half of the contig is unknown, so that a short segment of it often is."""
    half = np.concatenate([SOURCE.sample(10_000, 2), np.full(10_000, 4)])
    genome = fasta(tmp_path / "genome.fa.gz", one=SOURCE.sample(20_000, 1), two=half)
    sample = fasta(tmp_path / "sample.fa.gz", s=SOURCE.sample(500, 3))
    figures = report_samples(sample, genome, ["two"], tmp_path / "out", longest=2)
    real = figures["divergences"]["held-out sequence"]
    assert all(real[k]["high"] < 0.1 for k in "12")
