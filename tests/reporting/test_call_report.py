"""The check of expected precision, against counts by hand on planted start sites."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.genome.promoters import write_loci
from bigbird_dna.genome.sequence import Locus
from bigbird_dna.reporting.scan import BEST_F1
from tests.cli.command import Run, invoke, refused
from tests.reporting.test_scan import STRANDS, written


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Contigs of 100 kb with TSSs and as many decoys: `a` to fit, others to check."""
    home = tmp_path_factory.mktemp("calls")
    rng = np.random.default_rng(5)
    sites: list[Locus] = []
    windows: dict[str, list[tuple[str, int, str, float]]] = {"valid": [], "test": []}
    for contig in "abc":
        for strand in STRANDS:
            chosen = np.sort(
                rng.choice(np.arange(1000, 99_000, 500), 120, replace=False)
            )
            real = rng.random(120) < np.linspace(0.2, 0.9, 120)[rng.permutation(120)]
            sites += [Locus(contig, int(place), strand, "x") for place in chosen[real]]
            known = dict(zip(chosen.tolist(), real.tolist(), strict=True))
            for place in range(100, 100_000, 100):
                high = (
                    rng.beta(6, 3)
                    if known.get(place)
                    else rng.beta(3, 3)
                    if place in known
                    else 0.2 * rng.random()
                )
                windows["valid" if contig == "a" else "test"].append(
                    (contig, place, strand, round(float(high), 5))
                )
    write_loci(home / "promoters.tsv", sites)
    for name, rows in windows.items():
        written(home / f"{name}.tsv", rows)
    return home


def words(home: Path, **changed: object) -> list[object]:
    options = {
        "fit": f"model={home / 'valid.tsv'}",
        "scores": f"model={home / 'test.tsv'}",
    }
    options |= {"promoters": home / "promoters.tsv"}
    return [
        "evaluate scan",
        *(f"--{name}={value}" for name, value in (options | changed).items()),
    ]


def test_realized_precision_is_counted_and_expected(home: Path, tmp_path: Path) -> None:
    more = ("--within", 50, "--within", 200, "--suppress", 200, "-o", tmp_path / "out")
    invoke(*words(home), *more)
    table = pd.read_csv(tmp_path / "out/calls.tsv", sep="\t")
    assert (tmp_path / "out/calls.svg").read_text().startswith("<?xml")
    for _, found in table.groupby("within"):
        best = found.set_index("selection").loc[BEST_F1]
        assert best["precision_low"] < best["precision"] < best["precision_high"]
        correct = best["precision"] * best["calls"]
        assert best["recall"] == pytest.approx(correct / best["tss"], abs=1e-5)
        # What is expected is what is found, in every bin with many calls.
        many = found[found["calls"] >= 30]
        assert len(many) > 5
        margin = 3 * np.sqrt(0.25 / many["calls"])
        assert (many["expected_precision_low"] - margin < many["precision"]).all()
        assert (many["precision"] < many["expected_precision_high"] + margin).all()


@pytest.mark.usefixtures("no_figures")
def test_what_cannot_be_checked_is_refused(
    home: Path, run: Run, tmp_path: Path
) -> None:
    more = ("-o", tmp_path / "out")
    twice = words(home, fit=f"model={home / 'test.tsv'}")
    refused(run(*twice, *more), 1, "contig 'b'")
    refused(run(*words(home, fit=f"other={home / 'valid.tsv'}"), *more), 2, "model")
    write_loci(
        tmp_path / "few.tsv", [Locus("a", 5000, "+", "x"), Locus("b", 5000, "+", "x")]
    )
    refused(run(*words(home, promoters=tmp_path / "few.tsv"), *more), 1, "valid.tsv")
    assert not (tmp_path / "out").exists()
