"""Coding fractions of promoter windows, and negatives without any coding base."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.config.reading import load_config
from bigbird_dna.config.run import Config
from bigbird_dna.data.negatives import (
    coding_fractions,
    draw_candidates,
    find_free_starts,
    gc_fraction,
    open_coding,
)
from bigbird_dna.data.predictions import POSITIVE
from bigbird_dna.data.promoter_windows import (
    prepare_windows,
    read_windows,
    window_sequences,
)
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.finetuning.evaluation import held_out_predictions
from bigbird_dna.genome.assembly import load_assembly, open_assembly
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, Intervals
from tests.cli.command import Run, invoke, refused
from tests.golden.messages import fails, message
from tests.toys import written

LENGTH = 120
spans = st.lists(
    st.tuples(st.integers(0, LENGTH - 1), st.integers(1, 40)).map(
        lambda s: (s[0], min(sum(s), LENGTH))
    ),
    max_size=8,
)
WINDOW = ["contig", "start", "end", "strand"]


def columns(intervals: list[tuple[int, int]]) -> Intervals:
    starts, ends = (
        np.array([one[side] for one in intervals], np.int64) for side in (0, 1)
    )
    return Intervals(starts, ends)


def mask(intervals: list[tuple[int, int]]) -> np.ndarray:
    found = np.zeros(LENGTH, bool)
    for start, end in intervals:
        found[start:end] = True
    return found


def gtf(*features: tuple[str, str, int, int, str]) -> str:
    return "".join(
        f'{contig}\tx\t{kind}\t{start + 1}\t{end}\t.\t{strand}\t0\tgene_id "g";\n'
        for contig, kind, start, end, strand in features
    )


@given(spans, spans)
def test_fractions_are_those_of_a_mask(
    coding: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    regions = {"c": Intervals.union(*columns(coding))}
    rows = pd.DataFrame(asked, columns=["start", "end"], dtype=np.int64).assign(
        contig="c"
    )
    expected = [mask(coding)[start:end].mean() for start, end in asked]
    found = coding_fractions(regions, rows)
    assert (
        found.dtype == np.float32
        and found.tolist() == np.array(expected, np.float32).tolist()
    )
    assert not coding_fractions(regions, rows.assign(contig="d")).any()
    for start, end in asked:
        inner = regions["c"].within(Intervals(np.array([start]), np.array([end])))
        covered = [
            place - start for one in zip(*inner, strict=True) for place in range(*one)
        ]
        assert covered == np.flatnonzero(mask(coding)[start:end]).tolist()


@given(
    *(spans, spans, st.lists(st.integers(-30, LENGTH + 30), max_size=3)),
    *(st.integers(1, 30), st.integers(0, 12), st.integers(0, 200), st.integers(0, 99)),
)
def test_free_starts_are_all_starts_that_keep_away(
    coding: list[tuple[int, int]],
    unknown: list[tuple[int, int]],
    positions: list[int],
    size: int,
    distance: int,
    count: int,
    seed: int,
) -> None:
    sequence = "".join(np.where(mask(unknown), "N", "A"))
    blocked = mask(coding) | mask(unknown)
    expected = [
        start
        for start in range(LENGTH - size + 1)
        if not blocked[start : start + size].any()
        and all(
            abs(base - tss) >= max(distance, 1)
            for base in range(start, start + size)
            for tss in positions
        )
    ]
    places = np.array(positions, np.int64)
    free = find_free_starts(
        sequence, columns(coding), places, size=size, distance=distance
    )
    assert free.bases == len(expected)
    drawn = free.draw(count, np.random.default_rng(seed)).tolist()
    assert (
        drawn == sorted({*drawn})
        and {*drawn} <= {*expected}
        and len(drawn) == min(count, len(expected))
    )
    segment, config = (
        Interval("c", 1000, 1000 + LENGTH),
        SimpleNamespace(sides=(size - 1, 1), min_tss_distance=distance),
    )
    rng = np.random.default_rng(seed)
    windows, _ = draw_candidates(
        segment,
        sequence,
        places + 1000,
        free,
        config,
        count,
        rng,  # type: ignore[arg-type]
    )
    assert [window.start - 1000 for window in windows] == drawn


# Annotations on a reference


def test_an_annotation_is_placed_by_any_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(
        tmp_path / "x.gtf",
        gtf(
            ("I", "CDS", 10, 20, "+"),
            ("chrI", "CDS", 15, 30, "-"),
            ("I", "CDS", 95, 130, "+"),
        )
        + gtf(
            ("II", "CDS", 0, 5, "+"),
            ("chrX1", "CDS", 5, 9, "+"),
            ("I", "CDS", 200, 300, "-"),
        ),
    )
    regions = open_coding(
        path, {"NC_001133.9": 100, "NC_001134.8": 9}, load_assembly("sacCer3")
    )
    found = {
        name: [*zip(*map(list, one), strict=True)] for name, one in regions.items()
    }
    assert found == {"NC_001133.9": [(10, 30), (95, 100)], "NC_001134.8": [(0, 5)]}
    absent, beyond = capsys.readouterr().err.splitlines()
    assert f"warning: {path}: 1 of 6 CDS" in absent and "chrX1" in absent
    assert "2 of 6 CDS" in beyond and beyond.endswith("I 2")
    # One of other contigs is refused, and aliases help.
    aliases = tmp_path / "names.tsv"
    path.write_text(gtf(("other", "CDS", 1, 5, "+")))
    with fails(DataError):
        open_coding(path, {"one": 9}, load_assembly("custom"))
    aliases.write_text("one\tother\n")
    assert open_coding(path, {"one": 9}, open_assembly("custom", aliases))[
        "one"
    ].starts.tolist() == [1]


# Data sets

SETS = "promoters.windows.negative_sets=[permuted, genomic, intergenic]"


@pytest.fixture(scope="module")
def annotation(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Genes of 100 coding bases 130 bp behind half of the promoters of the tiny run."""
    path = tmp_path_factory.mktemp("annotation") / "genes.gtf"
    features = []
    for number, locus in enumerate(read_loci(load_config(tiny_config).paths.promoters)):
        if number % 2:
            continue
        start = locus.position + 130 if locus.strand == "+" else locus.position - 230
        features.append(
            (
                locus.contig,
                "CDS",
                start + 3 * (locus.strand == "-"),
                start + 100,
                locus.strand,
            )
        )
        if locus.strand == "-":
            features.append((locus.contig, "stop_codon", start, start + 3, "-"))
    path.write_text(gtf(*features))
    return path


def make(config: Config, output: Path, annotation: Path | None) -> pd.DataFrame:
    prepare_windows(
        config, config.paths.reference, config.paths.promoters, output, annotation
    )
    return pd.read_parquet(output / "windows.parquet")


def check_intergenic(
    rows: pd.DataFrame, config: Config, coding: dict[str, np.ndarray]
) -> None:
    """By brute force: no coding base, every base away from each TSS, none twice on either strand."""
    own = rows[rows["negative_set"] == "intergenic"]
    loci, distance = (
        read_loci(config.paths.promoters),
        config.promoters.windows.min_tss_distance,
    )
    tss = {
        contig: np.array([one.position for one in loci if one.contig == contig])
        for contig in coding
    }
    genome = Reference(config.paths.reference)
    for contig, start, end in own[WINDOW[:3]].itertuples(index=False, name=None):
        assert end - start == config.promoters.windows.length
        assert not coding[contig][start:end].any()
        assert (
            (start - tss[contig] >= distance) | (tss[contig] - (end - 1) >= distance)
        ).all()
        assert "N" not in genome.fetch(Interval(contig, start, end))
    assert not own.duplicated(["contig", "start"]).any()
    assert (own["coding"] == 0).all() and {*own["strand"]} == {"+", "-"}


def test_intergenic_windows_of_a_data_set(
    tiny_config: Path, tmp_path: Path, annotation: Path
) -> None:
    config = load_config(tiny_config, [SETS, "promoters.windows.min_tss_distance=20"])
    rows = make(config, tmp_path / "windows", annotation)
    with Reference(config.paths.reference) as reference:
        coding = {
            contig: np.zeros(length, bool)
            for contig, length in reference.contigs.items()
        }
    for contig, _, _, first, last in (
        line.split("\t")[:5] for line in annotation.read_text().splitlines()
    ):
        coding[contig][int(first) - 1 : int(last)] = True
    check_intergenic(rows, config, coding)
    own = rows[rows["negative_set"] == "intergenic"]
    contigs = {"train": "one", "valid": "two", "test": "three"}
    assert (own["contig"] == own["split"].map(contigs)).all()
    # Each promoter has as many as of genomic ones.
    genomic = rows[rows["negative_set"] == "genomic"]
    sizes = (some.groupby(["split", "pair"]).size() for some in (own, genomic))
    pd.testing.assert_series_equal(*sizes)
    assert set(own["split"]) == {"train", "valid", "test"}
    # Fractions are of the window, and derived negatives have their promoter's.
    expected = [
        coding[c][start:end].mean()
        for c, start, end in rows[WINDOW[:3]].itertuples(index=False)
    ]
    assert rows["coding"].dtype == np.float32 and list(rows.columns)[-1] == "coding"
    np.testing.assert_array_equal(rows["coding"], np.array(expected, np.float32))
    positives = rows[rows["negative_set"] == POSITIVE].set_index("pair")["coding"]
    permuted = rows[rows["negative_set"] == "permuted"]
    assert (
        permuted["coding"].to_numpy() == positives.loc[permuted["pair"]].to_numpy()
    ).all()
    sequences = window_sequences(Reference(config.paths.reference), rows, config.seed)
    gc = pd.Series([gc_fraction(text) for text in sequences])
    means = gc.groupby(rows["negative_set"]).mean()
    assert abs(means["intergenic"] - means[POSITIVE]) < 0.02
    info = json.loads((tmp_path / "windows/windows.json").read_text())
    half = (rows["coding"] > 0.5).groupby(rows["negative_set"]).sum()
    names = ("promoters", "genomic negatives", "intergenic negatives")
    counts = [info[f"{name} more than half coding"] for name in names]
    assert counts == [half[POSITIVE], half["genomic"], 0] and counts[1] > 0
    assert (
        info["annotation"]["file"] == "genes.gtf"
        and len(info["annotation"]["sha256"]) == 64
    )
    # They are read, and reach the predictions.
    data = read_windows(tmp_path / "windows", "intergenic")
    assert {*data.rows["negative_set"]} == {
        POSITIVE,
        "intergenic",
    } and "coding" in data.rows
    predicted = held_out_predictions(
        data, ["A"] * len(data.rows), lambda texts: np.zeros(len(texts))
    )
    assert "coding" in predicted


def test_other_windows_are_as_without_intergenic_ones(
    tiny_config: Path, tmp_path: Path, annotation: Path
) -> None:
    usual = ["promoters.windows.negative_sets=[permuted, genomic]"]
    changed = [SETS]
    plain = make(load_config(tiny_config, usual), tmp_path / "plain", None)
    same = make(load_config(tiny_config, usual), tmp_path / "same", annotation)
    more = make(load_config(tiny_config, changed), tmp_path / "more", annotation)
    assert "coding" not in plain
    pd.testing.assert_frame_equal(same.drop(columns="coding"), plain)
    others = more[more["negative_set"] != "intergenic"].reset_index(drop=True)
    others, same = (one.drop(columns="homology") for one in (others, same))
    pd.testing.assert_frame_equal(others, same)


def test_promoters_without_an_intergenic_negative_are_counted(
    tiny_config: Path,
    tmp_path: Path,
    annotation: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where there are few places all of them are found, and a warning counts what is missing."""
    settings = [
        SETS,
        "promoters.windows.negatives=400",
        "promoters.windows.min_tss_distance=20",
    ]
    config = load_config(tiny_config, settings)
    rows = make(config, tmp_path / "windows", annotation)
    own = rows[(rows["negative_set"] == "intergenic") & (rows["split"] == "train")]
    regions = open_coding(annotation, {"one": 30_000}, load_assembly("demo"))
    with Reference(config.paths.reference) as reference:
        sequence = reference.fetch(Interval("one", 0, 30_000))
    tss = [
        locus.position
        for locus in read_loci(config.paths.promoters)
        if locus.contig == "one"
    ]
    free = find_free_starts(
        sequence, regions["one"], np.array(tss, np.int64), size=100, distance=20
    )
    promoters = int(
        (rows["negative_set"].eq(POSITIVE) & rows["split"].eq("train")).sum()
    )
    assert len(own) == free.bases < 400 * promoters
    missing = json.loads((tmp_path / "windows/windows.json").read_text())[
        "intergenic negatives not found"
    ]
    assert missing == 400 * promoters - len(own)
    assert (
        f"{missing:,} of {missing + len(rows[rows['negative_set'] == 'intergenic']):,} intergenic"
        in capsys.readouterr().err
    )


def test_intergenic_negatives_need_an_annotation_as_option_or_key(
    tiny_config: Path, tmp_path: Path, annotation: Path, run: Run
) -> None:
    config = load_config(tiny_config, [SETS])
    with fails(ConfigError):
        make(config, tmp_path / "windows", None)
    with fails(ConfigError):
        config.check_targets()
    outcome = run(
        "prepare promoter-windows",
        tiny_config,
        "--set",
        SETS,
        "-o",
        tmp_path / "windows",
    )
    message(refused(outcome, 2), "--annotation")
    assert not (tmp_path / "windows").exists()
    # The command takes the option or the key.
    key = ("--set", f"promoters.annotation={annotation}")
    for name, words in (("option", ("--annotation", annotation)), ("key", key)):
        invoke(
            "prepare promoter-windows",
            tiny_config,
            "--set",
            SETS,
            *words,
            "-o",
            tmp_path / name,
        )
    one, other = (
        (tmp_path / name / "windows.parquet").read_bytes() for name in ("option", "key")
    )
    assert one == other


def test_a_wrong_column_of_fractions_is_refused(
    tiny_config: Path, tmp_path: Path
) -> None:
    source = load_config(tiny_config).paths.windows
    (tmp_path / "labels.npz").write_bytes((source / "labels.npz").read_bytes())
    rows = pd.read_parquet(source / "windows.parquet")
    rows.assign(coding=np.float32(0.5)).to_parquet(tmp_path / "windows.parquet")
    assert (read_windows(tmp_path, "genomic").rows["coding"] == 0.5).all()
    rows.assign(other=np.float32(0.5)).to_parquet(tmp_path / "windows.parquet")
    with fails(DataError):
        read_windows(tmp_path, "genomic")
