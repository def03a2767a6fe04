"""AUROC of mechanisms on tracks: intervals over stretches of sequence, and tracks that can't be judged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.tracks import Track, write_tracks
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.metrics.resampling import gain, resampled_aurocs
from bigbird_dna.papers.experiments.ablation import ablation_report
from bigbird_dna.papers.experiments.ablation_tracks import AblationTracks, ComparedTracks, compare_tracks
from tests.golden.messages import fails, message
from tests.papers.experiments.test_ablation_files import write as write_bits

NAMES = ("FAR", "NEAR")


def write_tracks_of(
    home: Path, labels: Any, scores: dict[str, Any], starts: Any, contigs: Any = "chr1", **changes: Any
) -> AblationTracks:
    """Files of N bins: labels (N,) of FAR, NEAR being another track; scores (N,) by NAME-SEED."""
    home.mkdir(exist_ok=True)
    other = np.arange(len(labels)) % 2
    PackedLabels.from_dense(np.stack([labels, other], axis=1).astype(np.int8)).save(home / "labels.npz")
    write_tracks(home / "tracks.tsv", [Track(name, "TF") for name in NAMES])
    starts = np.asarray(starts, np.int64)
    bins = pd.DataFrame({"contig": contigs, "start": starts, "end": starts + 200, "split": "test"})
    bins.to_parquet(home / "bins.parquet", index=False)
    predictions = {}
    for name, own in scores.items():
        predictions[name] = home / f"{name}.npy"
        np.save(predictions[name], np.stack([own, own], axis=1).astype(np.float32))
    made = AblationTracks(
        predictions, home / "labels.npz", home / "bins.parquet", home / "tracks.tsv", ["FAR"]
    )
    return made._replace(**changes)


def drawn_rows(seed: int = 3, rows: int = 60) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < 0.4).astype(np.int8)
    lifts = {"bigbird-1": 0.5, "full-1": 1.0}
    return labels, {
        name: (lift * labels + rng.normal(size=rows)).astype(np.float32) for name, lift in lifts.items()
    }


def judged(tracks: AblationTracks) -> ComparedTracks:
    return compare_tracks(tracks, "bigbird")


def test_bins_of_one_stretch_are_drawn_together(tmp_path: Path) -> None:
    """Ten bins that say the same are worth no more than one."""
    labels, scores = drawn_rows()
    starts = np.arange(len(labels)) * 10_000
    alone = judged(write_tracks_of(tmp_path / "a", labels, scores, starts)).reached["FAR"]
    tenfold = {name: np.repeat(row, 10) for name, row in scores.items()}
    within = (starts[:, None] + 200 * np.arange(10)).ravel()
    many = write_tracks_of(tmp_path / "b", np.repeat(labels, 10), tenfold, within)
    assert judged(many).notes == {}
    together = judged(many).reached["FAR"]
    for name in ("bigbird", "full"):
        np.testing.assert_allclose(together[name].value, alone[name].value)
        np.testing.assert_allclose(together[name].difference, alone[name].difference)
    drawn = resampled_aurocs(labels, np.stack([*scores.values()]), np.arange(len(labels)))
    values = [auroc(labels, row).value for row in scores.values()]
    assert alone["full"].difference == gain(values[1:], values[:1], drawn[1:], drawn[:1])


def test_stretches_are_those_of_a_contig(tmp_path: Path) -> None:
    labels, scores = drawn_rows()
    starts = np.arange(len(labels)) // 2 * 10_000
    contigs = np.where(np.arange(len(labels)) % 2, "chr1", "chr10")
    one = judged(write_tracks_of(tmp_path / "a", labels, scores, starts)).reached["FAR"]["full"]
    two = judged(write_tracks_of(tmp_path / "b", labels, scores, starts, contigs)).reached["FAR"]["full"]
    assert one.value.value == two.value.value and one.value.low != two.value.low


def test_separated_classes_are_not_certain(tmp_path: Path) -> None:
    """The interval is that of pairs that share no stretch."""
    labels = np.repeat([1, 0], 10)
    scores = {"bigbird-1": labels * 2.0, "full-1": labels * 3.0, "random-1": -labels, "window-1": labels * 0}
    apart = write_tracks_of(tmp_path / "a", labels, scores, np.arange(20) * 10_000)
    found = judged(apart).reached["FAR"]
    expected = auroc(labels, scores["full-1"])
    assert expected.low == pytest.approx(0.69, abs=0.005)
    assert found["full"].value == expected
    assert found["random"].value == auroc(labels, scores["random-1"])
    assert np.isnan(found["window"].value.low) and found["window"].value.value == 0.5
    assert found["full"].difference.value == 0 and np.isnan(found["full"].difference.low)
    # Of five stretches with two positives each.
    pairs = write_tracks_of(tmp_path / "b", labels, scores, np.arange(20) // 2 * 10_000)
    assert judged(pairs).reached["FAR"]["full"].value.low == pytest.approx(0.025 ** (1 / 5))


def test_positives_of_one_stretch_have_no_interval(tmp_path: Path) -> None:
    _, scores = drawn_rows()
    for count, note in (
        (1, "only one positive: no interval of AUROC"),
        (4, "all positives are within one stretch of 10,000 bp: no interval of AUROC"),
    ):
        labels = (np.arange(60) < count).astype(np.int8)
        made = judged(write_tracks_of(tmp_path / str(count), labels, scores, np.arange(60) * 2000))
        one = made.reached["FAR"]["full"]
        assert one.value.value == pytest.approx(auroc(labels, scores["full-1"]).value)
        assert np.isnan([*one.value[1:], *one.difference[1:]]).all() and made.notes == {"FAR": note}


def test_a_track_that_can_not_be_judged_loses_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, scores = drawn_rows()
    tracks = write_tracks_of(tmp_path / "t", np.zeros(60, np.int8), scores, np.arange(60) * 10_000)
    steps = [write_bits(tmp_path / "steps.npz")]

    def report(**changes: Any) -> None:
        ablation_report(steps, tmp_path / "out", reference="bigbird", tracks=tracks._replace(**changes))

    report(names=["FAR", "NEAR"])
    message(capsys.readouterr().err, tracks.labels, "FAR")
    table = pd.read_csv(tmp_path / "out/ablation.tsv", sep="\t")
    assert table[["auroc_FAR", "gain_FAR"]].isna().all(axis=None) and table["auroc_NEAR"].notna().all()
    told = json.loads((tmp_path / "out/ablation.json").read_text())
    assert told["track_notes"] == {"FAR": "no positives"}
    assert "FAR: no positives." in (tmp_path / "out/ablation.md").read_text()
    # All that there are, and too few of a kind.
    report(names=["NEAR"], min_positives=31)
    message(capsys.readouterr().err, "NEAR", "31")
    path = tracks.predictions["full-1"]
    for changes, error, named in (
        ({"names": ["ELSE"]}, DataError, ["'ELSE'", "FAR", "NEAR"]),
        ({"predictions": {**tracks.predictions, "window-1": path}}, UsageError, ["window-1"]),
        ({"predictions": {**tracks.predictions, "full-01": path}}, DataError, ["'full-01'"]),
    ):
        with fails(error, *named):
            report(**changes)


def test_bins_are_those_of_the_labels(tmp_path: Path) -> None:
    labels, scores = drawn_rows()
    tracks = write_tracks_of(tmp_path / "t", labels, scores, np.arange(60) * 10_000)
    bins = pd.read_parquet(tracks.bins)
    for table in (bins[:-1], bins.drop(columns="contig"), bins.assign(start=-1)):
        table.to_parquet(tracks.bins, index=False)
        with fails(DataError):
            judged(tracks)
    with fails(DataError):
        judged(tracks._replace(bins=tmp_path / "gone.parquet"))
