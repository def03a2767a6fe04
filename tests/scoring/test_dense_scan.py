"""Scans of the bins of a chromatin model of start sites: the windows, the strands, and the calls."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bigbird_dna
from bigbird_dna.calibration.call_precision import FILE, read_call_precision
from bigbird_dna.calibration.calls import find_track_calls
from bigbird_dna.errors import UsageError
from bigbird_dna.genome.promoters import write_loci
from bigbird_dna.genome.sequence import Locus, reverse_complement
from bigbird_dna.model.batching import View
from bigbird_dna.model.directory import load_chromatin_model, save
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack
from bigbird_dna.reporting.scan import read_scan
from bigbird_dna.scoring.scan import (
    ScoredWindow,
    bin_inputs,
    count_scores,
    scan_records,
    score_inputs,
)
from tests.cli.command import Run, refused
from tests.golden.messages import fails
from tests.scoring.test_call_promoters import called
from tests.scoring.test_promoter_scan import cells, fasta_records, toy, write
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

OTHER = {"+": "-", "-": "+"}
COLUMNS = {"+": 2, "-": 0}
TRACKS = (
    NamedTrack(track="TSS-", group="TSS", opposite="TSS+"),
    NamedTrack(track="x", group="TF"),
    NamedTrack(track="TSS+", group="TSS", opposite="TSS-"),
)
SETTINGS = ChromatinSettings(
    window=131, bin=11, pooling="bin", bin_layers=1, members=2, tracks=TRACKS
)
RECORDS = {
    **{
        "long": random_dna(901, 2),
        "gap": random_dna(300, 4) + "N" * 140 + random_dna(310, 5),
    },
    **{"short": random_dna(90, 3), "last": random_dna(112, 6)},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with bins of 11 bp, and a genome."""
    home = tmp_path_factory.mktemp("dense")
    encoder = small_encoder(small_tokenizer().vocabulary, max_length=160)
    save(
        home / "model",
        random_model(small_tokenizer(), encoder, SETTINGS, scale=3),
        {},
        {},
        {},
    )
    write(home / "genome.fa", RECORDS)
    return home


# Bins along records


def seen(sequences: Sequence[str], size: int, margin: int) -> np.ndarray:
    """Answers (N, K, 3) of a predictor that reads `margin` bp around each bin, on either strand."""
    bins = range(0, len(sequences[0]) - 2 * margin, size)
    found = np.full((len(sequences), len(bins), 3), np.nan, np.float32)
    for number, text in enumerate(sequences):
        parts = [text[start : start + size + 2 * margin] for start in bins]
        found[number, :, COLUMNS["+"]] = toy(parts)
        found[number, :, COLUMNS["-"]] = toy(
            [reverse_complement(part) for part in parts]
        )
    return found


def scan(
    records: dict[str, str], count: int, size: int, margin: int, **options: Any
) -> list[ScoredWindow]:
    predict = partial(seen, size=size, margin=margin)
    batch = options.pop("batch", 64)
    sizes = {
        "window": count * size + 2 * margin,
        "bin_size": size,
        "num_bins": count,
        "num_tracks": 3,
    }
    with TemporaryDirectory() as directory:
        path = write(Path(directory, "x.fa"), records)
        inputs = bin_inputs(path, records, columns=COLUMNS, **sizes, **options)
        return [row for rows in score_inputs(inputs, predict, batch) for row in rows]


SIZES = st.fixed_dictionaries(
    {
        "count": st.sampled_from([1, 3, 5]),
        "size": st.integers(1, 5),
        "margin": st.integers(0, 7),
    }
)


@settings(max_examples=60, deadline=None)
@given(
    fasta_records("ACGT"),
    SIZES,
    st.integers(1, 5),
    st.sampled_from(["+-", "-"]),
)
def test_bins_cover_records_and_have_the_scores_of_their_surroundings(
    records: dict[str, str], sizes: dict[str, int], batch: int, strands: str
) -> None:
    count, size, margin = (sizes[name] for name in ("count", "size", "margin"))
    options = {
        "max_n": 1.0,
        "batch": batch,
        "strands": tuple(strands),
    }
    rows = scan(records, **sizes, **options)
    assert [row.strand for row in rows] == [*strands] * (len(rows) // len(strands))
    for name, text in records.items():
        own = [row for row in rows if row.contig == name]
        padded = "N" * margin + text + "N" * margin
        for row in own:
            part = padded[row.start : row.end + 2 * margin]
            assert row.end - row.start == size and row.note == ""
            bases = [*range(row.start, row.end)]
            assert row.tss == (bases if row.strand == "+" else bases[::-1])[size // 2]
            assert (
                row.score
                == toy([part if row.strand == "+" else reverse_complement(part)])[0]
            )
        starts = [row.start for row in own][:: len(strands)]
        if len(text) >= count * size:
            assert starts[0] == 0 and starts[-1] + size == len(text)
            assert (
                max(np.diff(starts), default=0) < 2 * size
                and min(np.diff(starts), default=0) >= 0
            )
            assert sum(np.diff(starts) != size) <= 3
    turned = scan(
        {name: reverse_complement(text) for name, text in records.items()},
        **sizes,
        **options,
    )
    mirrored = [
        (
            row.contig,
            len(records[row.contig]) - row.end,
            len(records[row.contig]) - row.start,
            OTHER[row.strand],
            row.score,
            row.note,
        )
        for row in turned
    ]
    if len(strands) == 2 and all(
        len(text) >= count * size for text in records.values()
    ):
        assert sorted(mirrored) == sorted(cells(row)[:-1] for row in rows)


def test_windows_with_many_n_have_no_scores() -> None:
    records = {"a": "ACGTA" * 12 + "N" * 30 + "CAGGT" * 12, "b": "ACGT", "c": "N" * 40}
    rows = scan(records, 3, 5, 4, max_n=0.3)
    assert all(
        (row.score is None) == row.note.startswith(("n_fraction", "short;n_fraction"))
        for row in rows
    )
    unscored = {(row.contig, row.start) for row in rows if row.score is None}
    assert unscored == {("a", start) for start in range(60, 90, 5)} | {
        *(
            ("b", 0),
            *(
                ("c", start)
                for start in {row.start for row in rows if row.contig == "c"}
            ),
        )
    }
    assert [(row.start, row.end) for row in rows if row.note.startswith("short")] == [
        (0, 4)
    ] * 2


# A model


def test_strands_exchange_on_the_reverse_complement(home: Path) -> None:
    model, order = load_chromatin_model(home / "model"), [2, 1, 0]
    texts = [random_dna(131, seed) for seed in range(4)]
    turned = [reverse_complement(text) for text in texts]
    found, back = (model.predict(some, center_fraction=0.5) for some in (texts, turned))
    np.testing.assert_array_equal(back, found[:, ::-1][..., order])
    assert abs(found[..., 0] - found[..., 2]).max() > 0.05
    one, other = model.view_scores(texts, [View(False), View(True)])
    np.testing.assert_array_equal(
        model.view_scores(turned, [View(True)])[0], one[:, order]
    )
    assert abs(one - other).max() > 0.05
    alone = model.predict(texts, both_strands=False)
    np.testing.assert_allclose(
        model.predict(texts), (alone + sigmoid(other)[:, None]) / 2, atol=1e-6
    )


def sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))


def test_effects_of_variants_exchange_strands(home: Path, tmp_path: Path) -> None:
    model, text = bigbird_dna.load(home / "model"), RECORDS["long"]
    write(tmp_path / "turned.fa", {"long": reverse_complement(text)})
    places = range(300, 500, 23)
    pair = dict(zip("ACGT", "TGCA", strict=True))
    changes = [
        (place, text[place - 1], "ACGT"["ACGT".index(text[place - 1]) - 1])
        for place in places
    ]
    given = pd.DataFrame(
        [("long", *change) for change in changes],
        columns=["contig", "position", "ref", "alt"],
    )
    back = given.assign(
        position=len(text) + 1 - given["position"],
        ref=given["ref"].map(pair),
        alt=given["alt"].map(pair),
    )
    names = [f"{track.track}:delta" for track in TRACKS]
    options = {"tracks": "*"}
    found = model.variant_effects(given, home / "genome.fa", **options)[names]
    other = model.variant_effects(back, tmp_path / "turned.fa", **options)[names]
    np.testing.assert_allclose(other, found.to_numpy()[:, ::-1], atol=1e-6)
    some = model.variant_effects(given, home / "genome.fa", tracks="TSS+")
    np.testing.assert_allclose(some["TSS+:delta"], found["TSS+:delta"], atol=1e-9)


def test_calls_of_a_dense_model(run: Run, home: Path, tmp_path: Path) -> None:
    genome = home / "genome.fa"
    assert (
        run(
            "score-promoters", home / "model", genome, "-o", tmp_path / "scores.tsv"
        ).code
        == 0
    )
    scan = read_scan(tmp_path / "scores.tsv")
    best = find_track_calls(scan, 20)["long", "+"].positions[:12].tolist()
    promoters = tmp_path / "promoters.tsv"
    write_loci(
        promoters, [Locus("long", place, "+", f"p{place}") for place in sorted(best)]
    )
    calibrate = (
        "model calibrate",
        home / "model",
        "--reference",
        genome,
        "--promoters",
        promoters,
    )
    calibrate += ("--suppress", 20, "--within", 4, "-o", tmp_path / "made")
    refused(run(*calibrate), 2, "--contig")
    refused(run(*calibrate, "--contig", "long", "--stride", 5), 2, "stride")
    assert run(*calibrate, "--contig", "long").code == 0
    fitted = read_call_precision(tmp_path / "made" / FILE)
    assert (fitted.stride, fitted.tss) == (11, len(best))
    words = ("call-promoters", tmp_path / "made", genome, "--fdr", 1)
    assert run(*words, "-o", tmp_path / "calls.bed").code == 0
    found = called((tmp_path / "calls.bed").read_text())
    assert {(contig, strand, place) for contig, place, strand, _ in found} == {
        (*track, place)
        for track, calls in find_track_calls(scan, 20).items()
        for place in calls.positions
    }
    assert {contig for contig, *_ in found} == {"long", "gap", "last"}
    write(
        tmp_path / "turned.fa",
        {name: reverse_complement(text) for name, text in RECORDS.items()},
    )
    assert (
        run(
            *words[:2],
            tmp_path / "turned.fa",
            *words[3:],
            "-o",
            tmp_path / "turned.bed",
        ).code
        == 0
    )
    mirrored = [
        (contig, len(RECORDS[contig]) - 1 - place, OTHER[strand], score)
        for contig, place, strand, score in called(
            (tmp_path / "turned.bed").read_text()
        )
    ]
    assert sorted(mirrored) == sorted(found) and len(found) > 20


def test_the_progress_of_a_scan_ends_near_its_total(home: Path) -> None:
    model = load_chromatin_model(home / "model")
    lengths = {name: len(text) for name, text in RECORDS.items()}
    batches = scan_records(home / "genome.fa", lengths, model, strands=("+",), max_n=1)
    scores = sum(map(len, batches))
    assert scores > 100
    assert count_scores(lengths.values(), model) == pytest.approx(scores, rel=0.05)


def test_signals_regions_and_options_of_a_dense_model(
    run: Run, home: Path, tmp_path: Path
) -> None:
    words = ("score-promoters", home / "model", home / "genome.fa")
    whole = run(*words).out
    (tmp_path / "some.bed").write_text("long\t200\t230\ngap\t5\t6\n")
    some = run(*words, "--regions", tmp_path / "some.bed").out
    rows, kept = (
        [line for line in text.splitlines() if line.startswith(tuple(RECORDS))]
        for text in (whole, some)
    )
    assert kept == [row for row in rows if overlaps(row.split("\t"))] and len(kept) > 6
    signal = run(*words, "--format", "bedgraph").out
    covered = [
        line.split("\t")[:3] for line in signal.splitlines() if line.startswith("long")
    ]
    assert (covered[0][1], covered[-1][2]) == ("0", "901")
    with fails(UsageError):
        bigbird_dna.score_promoters(
            home / "model", home / "genome.fa", tmp_path / "x", stride=10
        )


def overlaps(row: list[str]) -> bool:
    start, end = int(row[1]), int(row[2])
    return (row[0] == "long" and start < 230 and end > 200) or (
        row[0] == "gap" and start < 6 and end > 5
    )
