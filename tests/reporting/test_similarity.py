"""Figures by stratum of similarity: the rows of each, and what doesn't fit together."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.data.predictions import KEY, blocks_of
from bigbird_dna.data.similar import Strata
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.tracks import Track, write_tracks
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.metrics.resampling import binary_metrics
from bigbird_dna.reporting.similarity import (
    bin_similarity_report,
    promoter_similarity_report,
)
from tests.cli.command import Result, Run, refused
from tests.golden.messages import fails
from tests.toys import predictions

NAMES = ["below 0.3", "0.3 to 0.5", "0.5 to 0.8", "0.8 and above"]


def test_a_bound_belongs_to_the_stratum_above_it() -> None:
    strata = Strata()
    assert strata.names == NAMES
    values = np.array([0, 0.29, 0.3, 0.49, 0.5, 0.799, 0.8, 1.0])
    assert strata.numbers(values).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert Strata([1.0]).names == ["below 1", "1 and above"]


@pytest.mark.parametrize(
    "bounds", [[], [0.0], [0.5, 0.3], [0.3, 0.3], [0.3, 1.2], [float("nan")]]
)
def test_bounds_that_make_no_strata(bounds: list[float]) -> None:
    with fails(UsageError):
        Strata(bounds)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A model's and a baseline's predictions, and a table of nearest windows in another order."""
    model = predictions("genomic", 80, lift=2.0, seed=1)
    model.to_parquet(tmp_path / "model.parquet", index=False)
    predictions("genomic", 80, lift=0.5, seed=2).to_parquet(
        tmp_path / "k-mer.parquet", index=False
    )
    rng = np.random.default_rng(3)
    table = model[[*KEY, "split"]].assign(
        similarity=(rng.random(len(model)) ** 2).round(6), nearest_contig="x"
    )
    table.sample(frac=1, random_state=1).to_csv(
        tmp_path / "nearest.tsv", sep="\t", index=False
    )
    return {
        name.split(".")[0]: tmp_path / name
        for name in ("model.parquet", "k-mer.parquet", "nearest.tsv")
    }


def report(files: dict[str, Path], output: Path, **options: Any) -> pd.DataFrame:
    made = {"genomic": {name: files[name] for name in ("model", "k-mer")}}
    return promoter_similarity_report(
        made, {"genomic": files["nearest"]}, output, **options
    )


def test_each_stratum_has_the_figures_of_its_pairs(
    files: dict[str, Path], tmp_path: Path
) -> None:
    report(files, tmp_path / "out")
    table = pd.read_csv(tmp_path / "out/similarity.tsv", sep="\t")
    assert list(table["similarity"].unique()) == ["all", *NAMES]
    assert list(table["model"][:2]) == ["model", "k-mer"]
    rows = pd.read_parquet(files["model"])
    rows = rows.merge(pd.read_csv(files["nearest"], sep="\t"), on=[*KEY, "split"])
    rows = rows[rows["split"] == "test"]
    largest = rows.groupby("pair")["similarity"].transform("max")
    assert (largest != rows["similarity"]).any()
    edges = [0, 0.3, 0.5, 0.8, 1.01]
    for name, low, high in zip(NAMES, edges, edges[1:], strict=False):
        some = rows[(largest >= low) & (largest < high)]
        found = table[(table["similarity"] == name) & (table["model"] == "model")].iloc[
            0
        ]
        wanted = binary_metrics(
            some["label"], some["probability"], blocks=blocks_of(some)
        )
        assert (found["n"], found["positives"]) == (wanted.n, wanted.positives)
        assert wanted.n == 2 * wanted.positives > 10  # pairs don't part
        assert found["auroc"] == pytest.approx(wanted.auroc, abs=1e-5)
        assert found["auprc_low"] <= found["auprc"] <= found["auprc_high"]
    assert table[table["similarity"] != "all"].groupby("model")["n"].sum().tolist() == [
        160,
        160,
    ]
    assert (tmp_path / "out/similarity.svg").read_text().startswith("<?xml")


def test_a_stratum_without_windows_has_a_note(
    files: dict[str, Path], tmp_path: Path
) -> None:
    nearest = pd.read_csv(files["nearest"], sep="\t").assign(similarity=0.1)
    nearest.to_csv(files["nearest"], sep="\t", index=False)
    table = report(files, tmp_path / "out", bounds=(0.2,))
    empty = table[table["similarity"] == "0.2 and above"]
    assert empty["n"].tolist() == [0, 0] and empty["auroc"].isna().all()
    assert set(empty["note"]) == {"no measured row"}


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda t: t[t["split"] == "test"].iloc[1:], "model.parquet"),
        (lambda t: t.drop(columns="similarity"), "'similarity'"),
        (lambda t: t.assign(similarity=1.5), "row 1: similarity '1.5'"),
        (lambda t: t.assign(similarity="near"), "row 1: similarity 'near'"),
        (lambda t: t.assign(start="1e3"), "row 1: start '1e3'"),
        (lambda t: pd.concat([t, t.tail(2)]), "row 162: contig"),
    ],
)
def test_tables_of_nearest_windows_that_will_not_do(
    files: dict[str, Path], tmp_path: Path, spoil: object, named: str
) -> None:
    table = pd.read_csv(files["nearest"], sep="\t")
    spoil(table).to_csv(files["nearest"], sep="\t", index=False)  # type: ignore[operator]
    with fails(DataError, named):
        report(files, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_the_command_refuses(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    command, model, nearest = (
        "evaluate promoters-by-similarity",
        files["model"],
        files["nearest"],
    )

    def call(
        *bins: str,
        made: str = f"genomic/model={model}",
        near: str = f"genomic={nearest}",
    ) -> Result:
        given = (f"--predictions={made}", f"--nearest={near}", "-o", tmp_path / "out")
        return run(command, *given, *(f"--similarity-bins={one}" for one in bins))

    result = call("0.5")
    assert (result.code, result.out) == (
        0,
        "",
    ) and "genomic, below 0.5: model AUROC 0." in result.err
    refused(call(made=f"genomic={model}"), 2, "--predictions genomic=", "SET/NAME=FILE")
    refused(call(near=f"x={nearest}"), 2, "'genomic'")
    refused(call("0.3;0.5"), 2, "--similarity-bins '0.3;0.5'")
    refused(call("0.5,0.3"), 2, "0.5, 0.3")
    refused(call(near=f"genomic={tmp_path / 'no.tsv'}"), 1, "no.tsv")


@pytest.fixture
def bins(tmp_path: Path) -> dict[str, Path]:
    rng = np.random.default_rng(1)
    labels = (rng.random((200, 3)) < [0.3, 0.4, 0.02]).astype(np.uint8)
    PackedLabels.from_dense(labels).save(tmp_path / "labels.npz")
    np.save(
        tmp_path / "model.npy",
        (labels + rng.normal(0, 1, labels.shape)).astype(np.float32),
    )
    write_tracks(
        tmp_path / "tracks.tsv",
        [Track(name, group) for name, group in ("aX", "bX", "cY")],
    )
    starts = 200 * np.arange(200)
    table = pd.DataFrame(
        {"contig": "c", "start": starts, "end": starts + 200, "split": "test"}
    )
    table.assign(similarity=rng.random(200).round(4)).to_csv(
        tmp_path / "nearest.tsv", sep="\t", index=False
    )
    names = ("labels.npz", "model.npy", "tracks.tsv", "nearest.tsv")
    return {name.split(".")[0]: tmp_path / name for name in names}


def test_strata_of_bins_have_the_medians_of_their_tracks(
    bins: dict[str, Path], tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "tracks": bins["tracks"],
        "bounds": (0.6,),
        "min_positives": 3,
    }
    out = tmp_path / "strata.tsv"
    bin_similarity_report(
        {"model": bins["model"]}, bins["labels"], bins["nearest"], out, **options
    )
    table = pd.read_csv(out, sep="\t")
    assert list(table["similarity"].unique()) == ["all", "below 0.6", "0.6 and above"]
    similarity = pd.read_csv(bins["nearest"], sep="\t")["similarity"].to_numpy()
    labels, values = PackedLabels.load(bins["labels"]).rows(), np.load(bins["model"])
    for name, some in (
        ("below 0.6", similarity < 0.6),
        ("0.6 and above", similarity >= 0.6),
    ):
        row = table[(table["similarity"] == name) & (table["group"] == "X")].iloc[0]
        areas = [
            auroc(labels[some, track], values[some, track]).value for track in (0, 1)
        ]
        assert row["median_auroc"] == pytest.approx(np.median(areas), abs=1e-5)
        assert (row["bins"], row["tracks"]) == (some.sum(), 2)
    few = table[table["group"] == "Y"]
    assert set(few["tracks"]) <= {0, 1} and 0 in set(few["tracks"])


def test_bins_that_do_not_belong_together(
    run: Run, bins: dict[str, Path], tmp_path: Path
) -> None:
    np.save(tmp_path / "short.npy", np.zeros((199, 3), np.float32))
    files = ("--labels", bins["labels"], "--track-table", bins["tracks"])
    command = ["evaluate bins-by-similarity", bins["nearest"], *files]
    out = ("-o", tmp_path / "out.tsv")
    result = run(*command, *out, f"--predictions=model={bins['model']}")
    assert (result.code, result.out) == (0, "") and "X, below 0.3" in result.err
    refused(
        run(*command, *out, f"--predictions=a={tmp_path / 'short.npy'}"),
        1,
        "199 rows × 3",
        "200 bins",
    )
    refused(
        run(*command, "-o", bins["labels"], f"--predictions=a={bins['model']}"),
        2,
        bins["labels"],
    )
