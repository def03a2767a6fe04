"""The position that a score is about, and records placed by their TSS, with sequences cut by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bigbird_dna
from bigbird_dna.model.directory import load_promoter_model
from bigbird_dna.model.promoter import LoadedPromoterModel
from tests.cli.command import Run, frame, refused
from tests.scoring.conftest import PROMOTER, RECORDS

PAIRS = str.maketrans("ACGTN", "TGCAN")
SITES = [(place, strand) for place in range(150, 700, 53) for strand in "+-"]


@pytest.fixture(scope="module")
def model(home: Path) -> LoadedPromoterModel:
    """The tiny model, whose windows have 40 bp before the TSS and 20 bp from it on."""
    assert (PROMOTER.upstream, PROMOTER.downstream) == (40, 20)
    return load_promoter_model(home / "promoter")


def cut(text: str, position: int, strand: str, before: int, after: int) -> str:
    """`before` bp before a base and `after` from it on, in transcription order."""
    if strand == "+":
        return text[position - before : position + after]
    return text[position - after + 1 : position + before + 1].translate(PAIRS)[::-1]


def test_a_score_is_about_the_base_in_column_tss(
    run: Run, home: Path, model: LoadedPromoterModel, tmp_path: Path
) -> None:
    assert (
        run(
            "score-promoters", model.path, home / "genome.fa", "-o", tmp_path / "x.tsv"
        ).code
        == 0
    )
    rows = pd.read_csv(tmp_path / "x.tsv", sep="\t", comment="#")
    assert [*rows.columns] == [
        "contig",
        "start",
        "end",
        "name",
        "score",
        "strand",
        "note",
        "tss",
    ]
    rows = rows[(rows["contig"] == "long")]
    windows = [
        cut(RECORDS["long"], int(tss), strand, 40, 20)
        for tss, strand in zip(rows["tss"], rows["strand"], strict=True)
    ]
    assert {len(window) for window in windows} == {60} and len(windows) > 100
    np.testing.assert_allclose(model.predict(windows), rows["score"], atol=1e-6)
    bigbird_dna.score_promoters(model, home / "genome.fa", tmp_path / "x.parquet")
    stored = pd.read_parquet(tmp_path / "x.parquet").query("contig == 'long'")
    assert stored["tss"].tolist() == rows["tss"].tolist()


def test_one_row_per_record_has_its_highest_score(
    run: Run, home: Path, tmp_path: Path
) -> None:
    words = ("score-promoters", home / "promoter", home / "genome.fa", "--stride", 7)
    whole, best = frame(run(*words).out), frame(run(*words, "--per-record").out)
    assert best["contig"].tolist() == [*RECORDS]
    scored = whole[whole["score"] != "NA"].assign(
        number=lambda rows: rows["score"].astype(float)
    )
    highest = scored.loc[
        scored.groupby("contig", sort=False)["number"].idxmax()
    ].set_index("contig")
    columns = ["start", "end", "name", "score", "strand", "tss"]
    found = best[best["score"] != "NA"].set_index("contig")
    pd.testing.assert_frame_equal(found[columns], highest[columns])
    assert best[best["score"] == "NA"]["note"].tolist() == ["short"] * 3
    unscored = (whole[whole["contig"] == "gap"]["score"] == "NA").sum()
    assert unscored and found.loc["gap", "note"] == f"not_scored={unscored}windows"
    one = frame(run(*words, "--per-record", "--strand", "-").out)
    assert set(one[one["score"] != "NA"]["strand"]) == {"-"}


def test_options_that_exclude_one_another_are_refused(
    run: Run, home: Path, tmp_path: Path
) -> None:
    words = (
        "score-promoters",
        home / "promoter",
        home / "genome.fa",
        "-o",
        tmp_path / "x",
    )
    for form in ("bedgraph", "bigwig"):
        refused(run(*words, "--per-record", "--format", form), 2, form)
    assert not (tmp_path / "x").exists()
