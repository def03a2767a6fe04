"""The position that a score is about, and records placed by their TSS, with sequences cut by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bigbird_dna
from bigbird_dna.errors import UsageError
from bigbird_dna.model.directory import load_promoter_model
from bigbird_dna.model.promoter import LoadedPromoterModel
from tests.cli.command import Run, frame, refused
from tests.golden.messages import fails
from tests.scoring.conftest import PROMOTER, RECORDS
from tests.scoring.test_promoter_scan import write
from tests.toys import random_dna

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


def test_records_are_scored_with_their_tss_where_the_model_expects_it(
    run: Run, model: LoadedPromoterModel, tmp_path: Path
) -> None:
    """Shorter than the window, or longer, or without the bases around the TSS."""
    text = RECORDS["long"]
    full = model.predict([cut(text, *site, 40, 20) for site in SITES])
    names = [f"r{number}" for number in range(len(SITES))]

    def score(before: int, after: int, offset: int, *words: object) -> pd.DataFrame:
        records = [cut(text, *site, before, after) for site in SITES]
        path = write(tmp_path / "x.fa", dict(zip(names, records, strict=True)))
        result = run(
            "score-promoters", model.path, path, "--tss-offset", offset, *words
        )
        assert result.code == 0, result.err
        return frame(result.out)

    rows = score(90, 77, 90)
    assert rows["contig"].tolist() == names and set(rows["strand"]) == {"+"}
    assert (set(rows["tss"]), set(rows["note"]), set(rows["start"]), set(rows["end"])) == (
        {"90"}, {"."}, {"50"}, {"110"},
    )  # fmt: skip
    np.testing.assert_allclose(rows["score"].astype(float), full, atol=1e-6)
    # Less than the window on the left, on the right, and on both sides; and with no base from the TSS on.
    for before, after in ((25, 20), (40, 13), (25, 13), (30, 0)):
        missing = 40 - before + 20 - after
        padded = [
            "N" * (40 - before) + cut(text, *site, before, after) + "N" * (20 - after)
            for site in SITES
        ]
        rows = score(before, after, before)
        np.testing.assert_allclose(
            rows["score"].astype(float), model.predict(padded, max_n=1), atol=1e-6
        )
        assert set(rows["note"]) == {f"padded={missing}"}
        assert set(rows["tss"]) == ({str(before)} if after else {"NA"})
        given = [cut(text, *site, before, after) for site in SITES]
        np.testing.assert_array_equal(
            model.predict(given, tss_offset=before), model.predict(padded, max_n=1)
        )
    # On the other strand, the window is on the other side of the base.
    rows = score(90, 77, 90, "--strand", "both")
    assert rows["strand"].tolist() == ["+", "-"] * len(SITES) and set(rows["tss"]) == {
        "90"
    }
    turned = [
        cut(text, place, "-" if strand == "+" else "+", 40, 20)
        for place, strand in SITES
    ]
    np.testing.assert_allclose(
        rows["score"].astype(float)[1::2], model.predict(turned), atol=1e-6
    )


def test_records_that_do_not_reach_the_window_are_listed(
    run: Run, model: LoadedPromoterModel, tmp_path: Path
) -> None:
    path = write(tmp_path / "x.fa", {"a": random_dna(50, 1), "b": random_dna(200, 2)})
    result = run("score-promoters", model.path, path, "--tss-offset", 90)
    rows = frame(result.out)
    assert (
        rows["note"].tolist() == ["outside", "."]
        and rows["score"][0] == rows["tss"][0] == "NA"
    )
    with fails(UsageError):
        model.predict([random_dna(50, 1)], tss_offset=90)
    for options in ({"tss_offset": -1}, {"tss_offset": 3, "pad": True}):
        with fails(UsageError):
            model.predict([random_dna(50, 1)], **options)  # type: ignore[call-overload]


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


def test_streams_of_placed_records_are_those_of_the_whole(
    run: Run, home: Path, tmp_path: Path
) -> None:
    words = (
        "score-promoters",
        home / "promoter",
        home / "genome.fa",
        "--tss-offset",
        30,
    )
    assert run(*words, "-o", tmp_path / "whole.tsv").code == 0
    assert run(*words).out == (tmp_path / "whole.tsv").read_text()
    some = frame(run(*words, "--contig", "last", "--contig", "gap").out)
    assert some["contig"].tolist() == ["gap", "last"]


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
    placed = (*words, "--tss-offset", 3)
    refused(run(*placed, "--stride", 10), 2, "stride")
    refused(run(*placed, "--regions", home / "some.bed"), 2, "regions")
    for form in ("bedgraph", "bigwig"):
        refused(run(*placed, "--format", form), 2, form)
        refused(run(*words, "--per-record", "--format", form), 2, form)
    assert not (tmp_path / "x").exists()
