"""Windows of a genome are those that are scored, and a scan's rows name their start sites."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ecoli_windows import active_sites, compare, highest, measure, scan

from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import Interval, Strand
from tests.toys import random_dna, written

LENGTH = 150
START_SITE: dict[Strand, int] = {"+": 119, "-": 120}  # base of a window that is read


class Gc:
    """A model whose score is the GC content."""

    def predict(self, texts: list[str]) -> np.ndarray:
        return np.array([[text.count("G") + text.count("C")] for text in texts])


class Highest(Gc):
    """A model of start sites that finds one at the last G, with the position as its score."""

    def predict(self, texts: list[str]) -> np.ndarray:
        scores = np.zeros((len(texts), 2, LENGTH))
        for row, text in zip(scores, texts, strict=True):
            row[0, text.rindex("G")] = text.rindex("G")
        return scores


@pytest.fixture
def genome(tmp_path: Path) -> Reference:
    fasta = written(tmp_path / "a.fa", f">a\n{random_dna(3000, 1)}\n")
    prepare_reference(fasta, tmp_path / "reference.fa.gz")
    return Reference(tmp_path / "reference.fa.gz")


def windows(genome: Reference) -> pd.DataFrame:
    rows = []
    for number in range(40):
        strand: Strand = "+-"[number % 2]  # type: ignore[assignment]
        place = Interval("a", 50 * number + 30, 50 * number + 30 + LENGTH, strand)
        text = genome.fetch(place)
        rows.append(("a", place.start, place.end, strand, f"w{number}", text))
    columns = ["contig", "start", "end", "strand", "name", "sequence"]
    frame = pd.DataFrame(rows, columns=columns)
    gc = frame["sequence"].str.count("[GC]")
    return frame.assign(activity=gc, label=(gc > gc.median()).astype(int))


def test_rows_of_a_scan_are_windows_read_on_their_strand(genome: Reference) -> None:
    table = scan(Gc(), LENGTH, genome, [Interval("a", 100, 1200)], 20)
    assert len(table) == 2 * len(range(100, 1200 - LENGTH + 1, 20))
    for row in table.itertuples():
        text = genome.fetch(Interval("a", row.start, row.end, row.strand))
        base = genome.fetch(Interval("a", row.tss, row.tss + 1, row.strand))
        assert row.score == Gc().predict([text])[0, 0]
        assert base == text[START_SITE[row.strand]]


def test_windows_in_their_place_have_the_metrics_of_their_sequences(
    genome: Reference, tmp_path: Path
) -> None:
    frame = windows(genome)
    table = scan(Gc(), LENGTH, genome, [Interval("a", 0, 3000)], 10)
    table.to_csv(tmp_path / "scan.tsv", sep="\t", index=False)
    rows = measure(Gc(), frame, genome, [("scan", tmp_path / "scan.tsv")])
    in_place = rows[(rows["predictor"] == "model") & (rows["shift"] == 0)]
    assert in_place["auroc"].item() == 1 and in_place["spearman"].item() == 1
    assert set(rows["shift"].dropna()) == {0, 1, -1, 2, -2, 5, -5, 10, -10, 25, -25}
    by_hand = []
    for window in frame.itertuples():
        of_strand = table[table["strand"] == window.strand]
        inside = (window.start <= of_strand["tss"]) & (of_strand["tss"] < window.end)
        by_hand.append(of_strand["score"][inside].max())
    found = highest(tmp_path / "scan.tsv", frame)
    assert found.tolist() == by_hand
    scanned = rows[rows["predictor"] == "scan"]["spearman"].item()
    assert scanned == compare(found, frame)["spearman"]


def test_start_sites_of_active_windows(genome: Reference) -> None:
    frame = windows(genome)
    sites = active_sites(frame).set_index("name")
    assert set(sites.index) == set(frame[frame["label"] == 1]["name"])
    for window in frame[frame["label"] == 1].itertuples():
        place = int(sites.loc[window.name, "position"])
        base = genome.fetch(Interval("a", place, place + 1, window.strand))
        assert base == window.sequence[START_SITE[window.strand]]


def test_a_model_of_start_sites_has_the_highest_score_of_a_window(
    genome: Reference,
) -> None:
    frame = windows(genome)
    rows = measure(Highest(), frame, genome, [])
    last = frame["sequence"].str.rindex("G").to_numpy(np.float64)
    assert rows["spearman"][0] == compare(last, frame)["spearman"]
