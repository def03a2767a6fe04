"""Variants with known effects: which rows the table has, what they rest on, and what is drawn."""

import io
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pysam
import pytest
from sklearn.metrics import roc_auc_score

from bigbird_dna.disk.directories import MARKER
from bigbird_dna.errors import DataError
from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.metrics.auroc import auroc, auroc_difference
from bigbird_dna.metrics.resampling import sequence_blocks
from bigbird_dna.reporting import variants as report
from bigbird_dna.reporting.variants import MOST_POINTS
from bigbird_dna.scoring import variants as scoring
from tests.cli.command import Run, refused, silent
from tests.cli.test_score_variants import hashed_model
from tests.golden.messages import fails, message


class KnownEffect(NamedTuple):
    """A variant as a row of the tables."""

    contig: str
    position: int
    track: str
    category: str
    effect: str
    delta: float
    log_odds: float
    ref: str = ""
    alt: str = ""


def frame(variants: Sequence[KnownEffect]) -> pd.DataFrame:
    return pd.DataFrame(variants, columns=report.COLUMNS)


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
        log_odds = delta * rng.uniform(1, 9)
        found.append(
            KnownEffect(contig, 100 * number + 1, track, place, effect, delta, log_odds)
        )
    return found


def test_areas_are_those_of_scikit_learn(variants: list[KnownEffect]) -> None:
    table = report.variant_table(frame(variants), ["c2"])
    parts = [*(f"category={name}" for name in sorted(EFFECTS)), "track=T0", "track=T1"]
    assert table["subset"].tolist() == [
        "all",
        *parts,
        "held-out",
        *(f"held-out {part}" for part in parts),
    ]
    against = {
        "disrupts_site": True,
        "creates_site": True,
        "tolerated": False,
        "flanking": False,
    }
    for row in table.to_dict("records"):
        name, value = row["subset"], row["subset"].partition("=")[2]
        whole = [v for v in variants if "held-out" not in name or v.contig == "c2"]
        own = rows = [v for v in whole if not value or value in (v.track, v.category)]
        if value in against:
            rows = own + [v for v in whole if (v.effect == "none") == against[value]]
        labels = [v.effect != "none" for v in rows]
        assert (row["variants"], row["with_effect"]) == (len(rows), sum(labels))
        sizes = [abs(v.delta) for v in rows]
        assert row["auroc"] == pytest.approx(roc_auc_score(labels, sizes))
        assert row["auroc_log_odds"] == pytest.approx(
            roc_auc_score(labels, [abs(v.log_odds) for v in rows])
        )
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
    one = KnownEffect("c", 1, "T", "", "loss", -0.5, -2.0)
    table = report.variant_table(frame([one, one._replace(delta=0.1)]), ["elsewhere"])
    assert table["subset"].tolist() == ["all", "held-out"]
    assert table["variants"].tolist() == [2, 0]
    assert table["sign_accuracy"].tolist()[0] == 0.5 and math.isnan(
        table["sign_accuracy"][1]
    )
    assert (
        table[["auroc", "auroc_low", "auroc_high", "auroc_log_odds"]]
        .isna()
        .all(axis=None)
    )
    # No row for a place without variants on the held-out contigs.
    there = [
        one._replace(category="disrupts_site"),
        one._replace(category="tolerated", contig="d", effect="none"),
    ]
    names = report.variant_table(frame(there), ["d"])["subset"].tolist()
    categories = ["category=disrupts_site", "category=tolerated"]
    assert names == ["all", *categories, "held-out", "held-out category=tolerated"]


def test_other_words_for_effects() -> None:
    sizes = (("functional", 0.4), ("functional", 0.1), ("silent", 0.2), ("silent", 0.0))
    rows = [KnownEffect("c", 1, "T", "", effect, size, size) for effect, size in sizes]
    (row,) = report.variant_table(frame(rows), no_effect="silent").to_dict("records")
    assert (row["with_effect"], row["auroc"]) == (2, 0.75)
    assert math.isnan(row["sign_accuracy"])


def test_p_values_and_areas_against_random_variants(
    variants: list[KnownEffect],
) -> None:
    rng = np.random.default_rng(4)
    random = [
        v._replace(position=v.position + 7, delta=rng.normal(0, 0.1))
        for v in variants * 2
    ]
    random[0] = random[0]._replace(
        delta=-variants[0].delta
    )  # an effect of the same size counts
    table, each = report.random_tables(frame(variants), frame(random), ["c2"])
    for row, v in zip(each.to_dict("records"), variants, strict=True):
        null = [abs(one.delta) for one in random if one.track == v.track]
        assert (row["position"], row["delta"], row["random"]) == (
            v.position,
            v.delta,
            len(null),
        )
        assert row["p_value"] == (1 + sum(size >= abs(v.delta) for size in null)) / (
            1 + len(null)
        )
    p_values = dict(zip(variants, each["p_value"], strict=True))
    assert len(table) == 16
    for row in table.to_dict("records"):
        value = row["subset"].partition("=")[2]
        # A category without effects is compared itself, also beside the held-out contigs.
        kept = {value} & {"tolerated", "flanking"}
        own, drawn = (
            [
                v
                for v in some
                if (not value or value in (v.track, v.category))
                and ("held-out" not in row["subset"] or v.contig == "c2")
                and (kept or v.effect != "none")
            ]
            for some in (variants, random)
        )
        assert (row["variants"], row["random"]) == (len(own), len(drawn))
        assert row["median_p_value"] == pytest.approx(
            np.median([p_values[v] for v in own])
        )
        labels, both = [1] * len(own) + [0] * len(drawn), own + drawn
        blocks = sequence_blocks([v.contig for v in both], [v.position for v in both])
        expected = auroc(labels, [abs(v.delta) for v in both], blocks)
        assert (row["auroc"], row["auroc_low"], row["auroc_high"]) == pytest.approx(
            expected
        )


def test_another_predictor_of_the_same_variants(variants: list[KnownEffect]) -> None:
    rng = np.random.default_rng(5)
    other = [
        v._replace(delta=rng.normal(0, 0.1), log_odds=1.0)
        for v in variants[::-1]
        if v.contig != "c1"
    ]
    table = report.compared_table(
        frame(variants), {"kmers": frame(other), "same": frame(variants)}, ["c2"]
    )
    shown = report.variant_table(frame(variants), ["c2"])
    same = table[table["predictor"] == "same"].reset_index()
    for name in (
        "subset",
        "variants",
        "with_effect",
        "auroc",
        "auroc_low",
        "sign_accuracy",
    ):
        pd.testing.assert_series_equal(same[name], shown[name])
    assert set(same["difference"]) == {0.0}
    rows = table[table["predictor"] == "kmers"].set_index("subset")
    both = [
        (v, next(o for o in other if o.position == v.position))
        for v in variants
        if v.contig != "c1"
    ]
    for subset, chosen in (
        ("all", both),
        ("track=T1", [pair for pair in both if pair[0].track == "T1"]),
    ):
        labels = [v.effect != "none" for v, _ in chosen]
        own, theirs = np.abs([(v.delta, o.delta) for v, o in chosen]).T
        blocks = sequence_blocks(
            [v.contig for v, _ in chosen], [v.position for v, _ in chosen]
        )
        found = rows.loc[
            subset,
            ["variants", "auroc", "difference", "difference_low", "difference_high"],
        ]
        difference = auroc_difference(labels, own, theirs, blocks).estimate
        assert found.tolist() == pytest.approx(
            [len(chosen), roc_auc_score(labels, theirs), *difference]
        )
    with fails(DataError):
        others = {"kmers": frame([v._replace(alt="T") for v in other])}
        report.compared_table(frame(variants), others)


@pytest.mark.parametrize("places", [True, False])
def test_figure(variants: list[KnownEffect], places: bool, tmp_path) -> None:
    shown = [v if places else v._replace(category="") for v in variants]
    for name in ("a", "b"):
        report.variant_figure(frame(shown), tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    text = (tmp_path / "a.svg").read_text()
    ElementTree.fromstring(text)
    for label in ("disrupts_site (60)", "flanking (60)") if places else ("gain (60)",):
        assert f"<!-- {label} -->" in text
    # As many variants as there may be, the file stays small.
    many = [v._replace(delta=v.delta + n / 1e4) for n in range(30) for v in shown]
    assert len(many) > 10 * MOST_POINTS
    report.variant_figure(frame(many), tmp_path / "many.svg")
    assert (tmp_path / "many.svg").stat().st_size < 600_000


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
    own = [
        ("&".join(map(str, one)), "&".join(str(10 * value) for value in one))
        for one in deltas
    ]
    changes, odds = (
        ",".join(text or "." for text in texts) for texts in zip(*own, strict=True)
    )
    return f"BBD_DELTA={changes};BBD_LOGODDS={odds}"


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
    code, _, log = run(
        "evaluate variants", scored, "-o", out, "--held-out", "c2", "--held-out", "c3"
    )
    assert code == 0
    assert {path.name for path in out.iterdir()} == {
        "variants.tsv",
        "variants.svg",
        MARKER,
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
        "4 excluded: ",
        *reasons,
        "c3",
        "c1, c2",
    )
    rows = written(out)
    # Sizes with an effect: 0.5, 0.1, 0.3, 0.4; without: 0.2, 0.05, 0.01. One of twelve pairs is wrong.
    assert rows.loc["all", ["variants", "with_effect"]].tolist() == [7, 4]
    assert (
        rows.loc["all", "auroc"]
        == rows.loc["all", "auroc_log_odds"]
        == pytest.approx(11 / 12)
    )
    assert rows.loc["all", "sign_accuracy"] == 0.75
    assert rows.loc["category=disrupts_site", "auroc"] == pytest.approx(5 / 6)
    assert rows.loc["category=disrupts_site", "sign_accuracy"] == 1
    assert rows.loc["category=tolerated", "auroc"] == 0.75 and np.isnan(
        rows.loc["category=tolerated", "sign_accuracy"]
    )
    assert rows.loc["track=CTCF", ["variants", "auroc"]].tolist() == [6, 1]
    assert rows.loc["held-out", ["variants", "with_effect"]].tolist() == [1, 0]
    assert np.isnan(rows.loc["held-out", "auroc"])
    # The same bytes again, in the place of the former.
    before = {path: path.read_bytes() for path in out.iterdir()}
    run("evaluate variants", scored, "-o", out, "--held-out", "c2", "--held-out", "c3")
    assert {path: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.usefixtures("no_figures")
def test_other_names_and_one_track_for_all(
    run: Run, scored: Path, tmp_path: Path
) -> None:
    text = (
        scored.read_text()
        .replace("EFFECT=none", "EFFECT=No")
        .replace("EFFECT=", "CAUSAL=")
    )
    scored.write_text(text.replace("CATEGORY=", "KIND="))
    fields = (
        "--effect-field",
        "CAUSAL",
        "--category-field",
        "KIND",
        "--no-effect",
        "no",
    )
    # As the second ALT's word is its own, only the first is without an effect there.
    assert run("evaluate variants", scored, "-o", tmp_path / "r", *fields).code == 0
    rows = written(tmp_path / "r")
    assert rows.loc["all", "auroc"] == pytest.approx(11 / 12)
    assert rows.loc["category=disrupts_site", "variants"] == 5
    code, _, log = run(
        "evaluate variants",
        scored,
        "-o",
        tmp_path / "r",
        *fields,
        "--track",
        "open chromatin",
    )
    assert code == 0 and "MYC" not in log
    rows = written(tmp_path / "r")
    assert rows.loc["all", "variants"] == 8 and "track=CTCF" not in rows.index
    refused(
        run(
            "evaluate variants",
            scored,
            "-o",
            tmp_path / "x",
            *fields,
            "--track",
            "CTFC",
        ),
        2,
        "'CTFC'",
    )


@pytest.fixture
def genuine(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path, Path]:
    """A VCF with the truth, and what score-variants makes of it: a VCF and a table."""
    monkeypatch.setattr(scoring, "load_scoring_model", lambda _: hashed_model(60))
    fasta, truth = tmp_path / "genome.fa.gz", tmp_path / "truth.vcf"
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
    truth.write_text(
        "##fileformat=VCFv4.2\n##contig=<ID=chr1>\n" + COLUMN_LINE + "".join(lines)
    )
    outputs = tmp_path / "scored.vcf.gz", tmp_path / "scored.tsv.gz"
    for output in outputs:
        words = (
            "score-variants",
            "model",
            truth,
            "--reference",
            fasta,
            "--tracks",
            "*",
        )
        assert run(*words, "-o", output).code == 0
    return truth, *outputs


@pytest.mark.usefixtures("no_figures")
def test_what_score_variants_writes(
    run: Run, genuine: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """Both formats, and the truth beside the VCF or in it, give the same figures."""
    truth, vcf, tsv = genuine
    tables = []
    others = ("--compare", f"table={tsv}", "--truth", truth)
    assert run("evaluate variants", vcf, *others, "-o", tmp_path / "compared").code == 0
    compared = pd.read_csv(tmp_path / "compared/compared_variants.tsv", sep="\t")
    assert set(compared["predictor"]) == {"table"} and set(compared["difference"]) == {
        0
    }
    for name, words in {
        "a": (vcf,),
        "b": (vcf, "--truth", truth),
        "c": (tsv, "--truth", truth),
    }.items():
        code, _, log = run("evaluate variants", *words, "-o", tmp_path / name)
        assert code == 0 and "20 variants evaluated" in log and "excluded" not in log
        tables.append(written(tmp_path / name))
    for other in tables[1:]:
        pd.testing.assert_frame_equal(tables[0], other)
    signs = []
    with pysam.VariantFile(str(vcf)) as records:
        for row in records:
            track = TRACKS.index(row.info["TRACK"].replace("%20", " "))
            delta = float(row.info["BBD_DELTA"][0].split("&")[track])
            if row.info["EFFECT"] != "none":
                signs.append((delta > 0) == (row.info["EFFECT"] == "gain"))
    assert tables[0].loc["all", "sign_accuracy"] == pytest.approx(
        np.mean(signs), abs=1e-5
    )


@pytest.mark.usefixtures("no_figures")
def test_random_variants(
    run: Run, genuine: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """As a VCF or a table: of every variant, on its own track; those of others are no null distribution."""
    truth, vcf, tsv = genuine
    genome = ("--reference", tmp_path / "genome.fa.gz")
    nulls = tmp_path / "null.vcf", tmp_path / "null.tsv"
    for null in nulls:
        words = (
            "score-variants",
            "model",
            truth,
            *genome,
            "--tracks",
            "*",
            "--max-n",
            1,
            "--random",
            3,
        )
        assert run(*words, "-o", null).code == 0
    found = []
    for scored, null in ((vcf, nulls[0]), (tsv, nulls[1])):
        words = (scored, "--truth", truth, "--null", null, "-o", tmp_path / "r")
        code, _, log = run("evaluate variants", *words)
        assert code == 0
        message(log, "39 random variants")
        found.append(
            [
                (tmp_path / f"r/{name}.tsv").read_text()
                for name in ("random_variants", "variant_p_values")
            ]
        )
    assert found[0] == found[1]
    each = pd.read_csv(io.StringIO(found[0][1]), sep="\t")
    assert (
        each["random"].tolist() == [30] * 20
        and each["p_value"].between(1 / 31, 1).all()
    )
    # Without known effects, all variants on one track.
    words = ("evaluate variants", tsv, "--null", nulls[1], "-o", tmp_path / "unknown")
    assert run(*words, "--track", "CTCF").code == 0
    each = pd.read_csv(tmp_path / "unknown/variant_p_values.tsv", sep="\t")
    assert set(each["effect"]) == {"unknown"} and each["random"].tolist() == [60] * 20
    assert written(tmp_path / "unknown")["auroc"].isna().all()
    refused(run(*words), 2, "scored.tsv")
    text = nulls[1].read_text()
    for fault in (
        text.replace(":1\t", ":0:1\t").replace(":2\t", "\t").replace(":3\t", ";3\t"),
        text.split("chr1")[0],
    ):
        nulls[1].write_text(fault)
        refused(
            run("evaluate variants", vcf, "--null", nulls[1], "-o", tmp_path / "x"),
            1,
            "null.tsv",
        )
    nulls[1].write_text(text.replace("CTCF", "MYC"))
    refused(
        run("evaluate variants", vcf, "--null", nulls[1], "-o", tmp_path / "x"),
        1,
        "'CTCF'",
    )


@pytest.mark.usefixtures("no_figures")
def test_the_truth_of_other_variants(
    run: Run, genuine: tuple[Path, Path, Path], scored: Path, tmp_path: Path
) -> None:
    truth, _, tsv = genuine
    result = run("evaluate variants", scored, "--truth", truth, "-o", tmp_path / "r")
    refused(result, 1)
    # A variant that has effects on two tracks counts for each.
    lines = truth.read_text().splitlines(keepends=True)
    twice = lines[3].replace("TRACK=CTCF", "TRACK=open%20chromatin")
    truth.write_text(
        "".join([*lines, twice, "chr1\t399\t.\tA\tC\t.\t.\tEFFECT=none;TRACK=CTCF\n"])
    )
    code, _, log = run("evaluate variants", tsv, "--truth", truth, "-o", tmp_path / "r")
    assert code == 0
    message(log, "21 variants", "1 excluded: 1 ")
    refused(run("evaluate variants", tsv, "-o", tmp_path / "x"), 2)
    text = tsv.with_suffix("")
    text.write_text("#contig\tposition\tref\talt\tid\tnote\tmax_delta\tmax_track\n")
    result = run("evaluate variants", text, "--truth", truth, "-o", tmp_path / "x")
    refused(result, 1)
    for columns, fault in (
        ("a:delta", "no column 'a:logodds'"),
        ("a:delta\ta:logodds\tid", "2 columns called 'id'"),
    ):
        text.write_text(f"#contig\tposition\tref\talt\tid\tnote\t{columns}\n")
        result = run("evaluate variants", text, "--truth", truth, "-o", tmp_path / "x")
        refused(result, 1, fault)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("BBD_DELTA,", "OTHER,"),
        ("BBD_LOGODDS=", "BBD_OTHER="),
        ("EFFECT=", "EFECT="),
        ("=-0.5&0.9;", "=-0.5;"),
        ("=-0.5&0.9;", "=-0.5,0.9;"),
        ("=-0.5&0.9;", "=x&0.9;"),
        ("=-0.5&0.9;", "=nan&0.9;"),
        ("=none,loss", "=none,loss,loss"),
        ("##fileformat=VCFv4.2", "junk"),
    ],
)
@pytest.mark.usefixtures("no_figures")
def test_files_that_will_not_do(
    run: Run, scored: Path, tmp_path: Path, old: str, new: str
) -> None:
    assert old in scored.read_text()
    scored.write_text(scored.read_text().replace(old, new))
    refused(run("evaluate variants", scored, "-o", tmp_path / "out"), 1, "scored.vcf")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_figures")
def test_what_can_not_be_asked_for(run: Run, scored: Path, tmp_path: Path) -> None:
    refused(run("evaluate variants", scored, "-o", scored), 2)
    missing = tmp_path / "none.vcf"
    refused(run("evaluate variants", missing, "-o", tmp_path / "r"), 1)
    result = run("evaluate variants", scored, "--truth", missing, "-o", tmp_path / "r")
    refused(result, 1)
    code, _, text = run("evaluate variants", scored)
    assert code == 2 and "--output" in text
