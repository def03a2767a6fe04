"""Variants with known effects: which rows the table has, what they rest on, and what is drawn."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pysam
import pytest
from sklearn.metrics import roc_auc_score

from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.metrics.auroc import auroc, auroc_difference
from bigbird_dna.metrics.resampling import sequence_blocks
from bigbird_dna.reporting import variants as report
from bigbird_dna.scoring import variants as scoring
from tests.cli.command import Run, refused, silent
from tests.cli.test_score_variants import hashed_model
from tests.golden.messages import message


class KnownEffect(NamedTuple):
    """A variant as a row of the tables."""

    contig: str
    position: int
    track: str
    category: str
    effect: str
    delta: float
    ref: str = ""
    alt: str = ""


def frame(variants: Sequence[KnownEffect]) -> pd.DataFrame:
    return pd.DataFrame(variants, columns=KnownEffect._fields)


EFFECTS = {
    "disrupts_site": ["loss"],
    "creates_site": ["gain"],
    "tolerated": ["none"],
    "flanking": ["none"],
}
EFFECTS["mixed"] = ["none", "loss"]


@pytest.fixture
def variants() -> list[KnownEffect]:
    rng = np.random.default_rng(3)
    found = []
    for number in range(300):
        place = list(EFFECTS)[number % 5]
        effect = str(rng.choice(EFFECTS[place]))
        delta = rng.normal(0, 0.1) + {"loss": -0.1, "gain": 0.15, "none": 0}[effect]
        contig, track = f"c{number % 3}", f"T{number % 2}"
        found.append(KnownEffect(contig, 100 * number + 1, track, place, effect, delta))
    return found


def test_areas_are_those_of_scikit_learn(variants: list[KnownEffect]) -> None:
    table = report.variant_table(frame(variants))
    parts = [*(f"category={name}" for name in sorted(EFFECTS)), "track=T0", "track=T1"]
    assert table["subset"].tolist() == ["all", *parts]
    against = {
        "disrupts_site": True,
        "creates_site": True,
        "tolerated": False,
        "flanking": False,
    }
    for row in table.to_dict("records"):
        value = row["subset"].partition("=")[2]
        own = rows = [
            v for v in variants if not value or value in (v.track, v.category)
        ]
        if value in against:
            rows = own + [v for v in variants if (v.effect == "none") == against[value]]
        labels = [v.effect != "none" for v in rows]
        assert (row["variants"], row["with_effect"]) == (len(rows), sum(labels))
        sizes = [abs(v.delta) for v in rows]
        assert row["auroc"] == pytest.approx(roc_auc_score(labels, sizes))
        blocks = sequence_blocks([v.contig for v in rows], [v.position for v in rows])
        expected = auroc(labels, sizes, blocks)[1:]
        assert (row["auroc_low"], row["auroc_high"]) == pytest.approx(
            expected, rel=1e-12
        )
        signs = [
            (v.delta > 0) == (v.effect == "gain")
            for v in own
            if v.effect in ("gain", "loss")
        ]
        expected = np.mean(signs) if signs else math.nan
        assert row["sign_accuracy"] == pytest.approx(expected, nan_ok=True)


def test_what_is_not_defined_is_empty() -> None:
    one = KnownEffect("c", 1, "T", "", "loss", -0.5)
    table = report.variant_table(frame([one, one._replace(delta=0.1)]))
    (row,) = table.to_dict("records")
    assert (row["subset"], row["variants"], row["sign_accuracy"]) == ("all", 2, 0.5)
    areas = ["auroc", "auroc_low", "auroc_high"]
    assert table[areas].isna().all(axis=None)


@pytest.mark.parametrize("places", [True, False])
def test_figure(variants: list[KnownEffect], places: bool, tmp_path) -> None:
    shown = [v if places else v._replace(category="") for v in variants]
    path = tmp_path / "a.plotly.json"
    report.variant_figure(frame(shown), path)
    before = path.read_bytes()
    report.variant_figure(frame(shown), path)
    assert path.read_bytes() == before
    order = json.loads(before)["layout"]["yaxis"]["categoryarray"]
    assert len(order) == (5 if places else 3)
    assert order[0].startswith(("tolerated (60)", "flanking (60)", "none ("))
    assert order[-1].startswith(("disrupts", "creates", "gain", "loss"))
    # As many variants as there may be, the file stays small.
    many = [v._replace(delta=v.delta + n / 1e4) for n in range(30) for v in shown]
    assert len(many) == 9000
    report.variant_figure(frame(many), path)
    assert path.stat().st_size < 100_000


# `evaluate variants` as a command: what score-variants writes goes in, a table and a figure come out


TRACKS = ["CTCF", "open chromatin"]
COLUMN_LINE = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
HEADER = (
    "##fileformat=VCFv4.2\n"
    '##INFO=<ID=BBD_DELTA,Number=A,Type=String,Description="Change of probability, ALT minus REF, '
    "mean over both strands and the windows' offsets: joined by &, for the tracks CTCF,open%20chromatin"
    '",Source="bigbird-dna",Version="0.1.0">\n'
)


@pytest.fixture
def run(run: Run) -> Run:
    return silent(run)


def record(pos: int, alts: str, info: str, contig: str = "c1") -> str:
    return f"{contig}\t{pos}\t.\tA\t{alts}\t.\tPASS\t{info}\n"


def values(*deltas: Sequence[float]) -> str:
    """Values of both tracks for each ALT; none if it was not scored."""
    changes = ["&".join(map(str, one)) or "." for one in deltas]
    return f"BBD_DELTA={','.join(changes)}"


RECORDS = [
    record(
        1, "C", f"EFFECT=loss;TRACK=CTCF;CATEGORY=disrupts_site;{values([-0.5, 0.9])}"
    ),
    record(
        2,
        "C",
        f"EFFECT=GAIN;TRACK=open%20chromatin;CATEGORY=disrupts_site;{values([0.9, 0.1])}",
    ),
    record(3, "C", f"TRACK=CTCF;CATEGORY=tolerated;EFFECT=none;{values([0.2, 0.9])}"),
    record(
        4, "C", f"EFFECT=none;TRACK=CTCF;CATEGORY=flanking;{values([-0.05, 0.9])}", "c2"
    ),
    # One truth for both ALT, of which the second was not scored; then one for each.
    record(
        5,
        "C,<DEL>",
        f"EFFECT=loss;TRACK=CTCF;{values([0.3, 0], [])};BBD_NOTE=.,SYMBOLIC",
    ),
    record(6, "C,G", f"EFFECT=none,loss;TRACK=CTCF;{values([0.01, 0], [-0.4, 0])}"),
    record(7, "C", f"EFFECT=loss;TRACK=MYC;{values([1, 1])}"),
    record(8, "C", values([1, 1])),
    record(9, "C", "EFFECT=loss;TRACK=CTCF;BBD_NOTE=REF_MISMATCH"),
]


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    path = tmp_path / "scored.vcf"
    path.write_text(HEADER + COLUMN_LINE + "".join(RECORDS))
    return path


def written(out: Path) -> pd.DataFrame:
    return pd.read_csv(out / "variants.tsv", sep="\t").set_index("subset")


def test_report(run: Run, scored: Path, tmp_path: Path) -> None:
    out = tmp_path / "a/report"
    code, _, log = run("evaluate variants", scored, "-o", out)
    assert code == 0
    assert {path.name for path in out.iterdir()} == {
        "variants.tsv",
        "variants.plotly.json",
    }
    reasons = (
        "1 not scored (SYMBOLIC)",
        "1 not scored (REF_MISMATCH)",
        "1 without EFFECT",
        "1 on MYC",
    )
    message(
        log,
        "7 variants",
        "3 loss, 3 none, 1 gain",
        "4 variants excluded: ",
        *reasons,
    )
    rows = written(out)
    # Sizes with an effect: 0.5, 0.1, 0.3, 0.4; without: 0.2, 0.05, 0.01. One of twelve pairs is wrong.
    assert rows.loc["all", ["variants", "with_effect"]].tolist() == [7, 4]
    assert rows.loc["all", "auroc"] == pytest.approx(11 / 12)
    assert rows.loc["all", "sign_accuracy"] == 0.75
    assert rows.loc["category=disrupts_site", "auroc"] == pytest.approx(5 / 6)
    assert rows.loc["category=disrupts_site", "sign_accuracy"] == 1
    assert rows.loc["category=tolerated", "auroc"] == 0.75 and np.isnan(
        rows.loc["category=tolerated", "sign_accuracy"]
    )
    assert rows.loc["track=CTCF", ["variants", "auroc"]].tolist() == [6, 1]
    # The same bytes again, in the place of the former.
    before = {path: path.read_bytes() for path in out.iterdir()}
    run("evaluate variants", scored, "-o", out)
    assert {path: path.read_bytes() for path in out.iterdir()} == before


def test_one_track_for_all(run: Run, scored: Path, tmp_path: Path) -> None:
    words = ("evaluate variants", scored, "-o", tmp_path / "r", "--track")
    code, _, log = run(*words, "open chromatin")
    assert code == 0 and "MYC" not in log
    rows = written(tmp_path / "r")
    assert rows.loc["all", "variants"] == 8 and "track=CTCF" not in rows.index
    refused(run(*words, "CTFC"), 2, "'CTFC'")


def test_what_score_variants_writes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "load", lambda _: hashed_model(60))
    fasta, vcf = tmp_path / "genome.fa.gz", tmp_path / "known.vcf"
    bases = "".join(np.random.default_rng(1).choice(list("ACGT"), 400))
    write_fasta(fasta, [("chr1", bases)])
    lines = []
    for number, pos in enumerate(range(50, 350, 15)):
        effect = ("none", "gain", "loss")[number % 3]
        ref = bases[pos - 1]
        info = f"EFFECT={effect};TRACK={TRACKS[number % 2].replace(' ', '%20')};CATEGORY={effect}"
        lines.append(
            f"chr1\t{pos}\t.\t{ref}\t{'A' if ref != 'A' else 'C'}\t.\tq10\t{info}\n"
        )
    header = "##fileformat=VCFv4.2\n##contig=<ID=chr1>\n"
    vcf.write_text(header + COLUMN_LINE + "".join(lines))
    scored = tmp_path / "scored.vcf.gz"
    words = ("score-variants", "model", vcf, "--reference", fasta, "--tracks", "*")
    assert run(*words, "-o", scored).code == 0
    words = ("evaluate variants", scored, "-o", tmp_path / "r")
    code, _, log = run(*words)
    assert code == 0 and "20 variants evaluated" in log and "excluded" not in log
    signs = []
    with pysam.VariantFile(str(scored)) as records:
        for row in records:
            track = TRACKS.index(row.info["TRACK"].replace("%20", " "))
            delta = float(row.info["BBD_DELTA"][0].split("&")[track])
            if row.info["EFFECT"] != "none":
                signs.append((delta > 0) == (row.info["EFFECT"] == "gain"))
    assert written(tmp_path / "r").loc["all", "sign_accuracy"] == pytest.approx(
        np.mean(signs), abs=1e-5
    )


def scored_vcf(path: Path, variants: Sequence[KnownEffect]) -> Path:
    """A VCF of `score-variants` for one track, T."""
    lines = [
        "##fileformat=VCFv4.2\n",
        '##INFO=<ID=BBD_DELTA,Number=A,Type=String,Description="Change: joined by &, for the tracks T">\n',
        COLUMN_LINE,
    ]
    for v in variants:
        info = f"EFFECT={v.effect};TRACK=T;CATEGORY={v.category}"
        info += f";BBD_DELTA={v.delta!r}"
        lines.append(record(v.position, "C", info, v.contig))
    path.write_text("".join(lines))
    return path


def test_another_predictor_of_the_same_variants(
    run: Run, variants: list[KnownEffect], tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    other = [
        v._replace(delta=rng.normal(0, 0.1)) for v in variants[::-1] if v.contig != "c1"
    ]
    scored = scored_vcf(tmp_path / "model.vcf", variants)
    kmers = scored_vcf(tmp_path / "kmers.vcf", other)
    words = ("evaluate variants", scored, "-o", tmp_path / "r", "--compare")
    assert run(*words, f"same={scored}", "--compare", f"kmers={kmers}").code == 0
    table = pd.read_csv(tmp_path / "r/compared_variants.tsv", sep="\t")
    own = pd.read_csv(tmp_path / "r/variants.tsv", sep="\t")
    same = table[table["predictor"] == "same"].reset_index()
    for name in ("subset", "variants", "with_effect", "auroc", "sign_accuracy"):
        pd.testing.assert_series_equal(same[name], own[name])
    assert set(same["difference"]) == {0.0}
    row = table[table["predictor"] == "kmers"].set_index("subset").loc["all"]
    both = [
        (v, next(o for o in other if o.position == v.position))
        for v in variants
        if v.contig != "c1"
    ]
    labels = [v.effect != "none" for v, _ in both]
    mine, theirs = np.abs([(v.delta, o.delta) for v, o in both]).T
    blocks = sequence_blocks([v.contig for v, _ in both], [v.position for v, _ in both])
    difference = auroc_difference(labels, mine, theirs, blocks).estimate
    found = row[["difference", "difference_low", "difference_high"]]
    assert [*found] == pytest.approx(difference, abs=1e-5)
    assert (row["variants"], row["auroc"]) == (
        len(both),
        pytest.approx(roc_auc_score(labels, theirs), abs=1e-5),
    )
    elsewhere = scored_vcf(tmp_path / "x.vcf", [variants[0]._replace(position=7)])
    refused(run(*words, f"kmers={elsewhere}"), 1, "x.vcf")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("BBD_DELTA,", "OTHER,"),
        ("EFFECT=", "EFECT="),
        ("=-0.5&0.9\n", "=-0.5\n"),
        ("=-0.5&0.9\n", "=-0.5,0.9\n"),
        ("=-0.5&0.9\n", "=x&0.9\n"),
        ("=-0.5&0.9\n", "=nan&0.9\n"),
        ("=none,loss", "=none,loss,loss"),
        ("##fileformat=VCFv4.2", "junk"),
    ],
)
def test_files_that_will_not_do(
    run: Run, scored: Path, tmp_path: Path, old: str, new: str
) -> None:
    assert old in scored.read_text()
    scored.write_text(scored.read_text().replace(old, new))
    refused(run("evaluate variants", scored, "-o", tmp_path / "out"), 1, "scored.vcf")
    assert not (tmp_path / "out").exists()


def test_what_can_not_be_asked_for(run: Run, scored: Path, tmp_path: Path) -> None:
    refused(run("evaluate variants", scored, "-o", scored), 2)
    missing = tmp_path / "none.vcf"
    refused(run("evaluate variants", missing, "-o", tmp_path / "r"), 1)
    code, _, text = run("evaluate variants", scored)
    assert code == 2 and "--output" in text
