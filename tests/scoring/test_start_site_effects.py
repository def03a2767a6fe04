"""Effects of variants on the start sites around them: the bases compared, the strands, and the files."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bigbird_dna
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.model.directory import save
from tests.cli.command import Run, refused
from tests.scoring.test_promoter_scan import write
from tests.toys import random_dna, start_site_model

WINDOW, MARGIN = 130, 10
TEXT = random_dna(300, 7) + "CACACACACACA" + random_dna(300, 8)
GAP = TEXT[:250] + "N" * 30 + TEXT[280:]
VALUES = ["ref_score", "alt_score", "delta", "sum_plus", "sum_minus"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("starts")
    model = start_site_model(window=WINDOW, margin=MARGIN)
    save(home / "model", model, {}, {}, {})
    write(home / "genome.fa", {"a": TEXT, "gap": GAP, "short": TEXT[:60]})
    return home


@pytest.fixture(scope="module")
def model(home: Path) -> Any:
    return bigbird_dna.load(home / "model")


def alleles(given: list[Any]) -> pd.DataFrame:
    """A table of variants such as "a:201:A:C"."""
    rows = [text.split(":") if isinstance(text, str) else text for text in given]
    table = pd.DataFrame(rows, columns=["contig", "position", "ref", "alt"])
    return table.astype({"position": int})


def scored(model: Any, window: str) -> np.ndarray:
    """The probabilities (K, 2) at the bases between the margins of a window."""
    probs = model.window_probabilities([window])[0, :, MARGIN : WINDOW - MARGIN]
    return np.asarray(probs.T, np.float64)


def test_effects_of_substitutions_are_differences_of_predictions(
    model: Any, home: Path
) -> None:
    found = model.variant_effects(
        alleles([f"a:{at + 1}:{TEXT[at]}:{other(at)}" for at in PLACES]),
        home / "genome.fa",
    )
    for at, row in zip(PLACES, found.itertuples(), strict=True):
        matching = []
        for before in (
            64,
            65,
        ):  # the variant is at the center of the window, on one of the strands
            window = TEXT[at - before : at - before + WINDOW]
            ref, alt = (
                scored(model, one)
                for one in (
                    window,
                    f"{window[:before]}{other(at)}{window[before + 1 :]}",
                )
            )
            change = alt - ref
            number, column = np.unravel_index(abs(change).argmax(), change.shape)
            site = at - before + MARGIN + int(number)
            values = (
                ref[number, column],
                alt[number, column],
                change[number, column],
                *change.sum(0),
            )
            same = np.allclose(
                [getattr(row, name) for name in VALUES], values, atol=1e-6
            )
            matching.append(same and (row.site, row.strand) == (site + 1, "+-"[column]))
        assert sum(matching) == 1


PLACES = range(120, 480, 23)


def other(at: int) -> str:
    return "ACGT"["ACGT".index(TEXT[at]) - 1]


def test_effects_are_mirrored_on_the_reverse_complement(
    model: Any, home: Path, tmp_path: Path
) -> None:
    changes = [(at, TEXT[at], other(at)) for at in PLACES]
    changes += [(at, TEXT[at : at + 9], "") for at in PLACES] + [
        (at, "", "ACGTTGCA") for at in PLACES
    ]
    changes += [
        (302, "CA", ""),
        (302, "", "CACA"),
        (200, TEXT[200:203], "TTTTT"),
        (200, TEXT[200:205], "GGG"),
    ]
    # With the base before or behind the change, since an allele is not empty
    given = [
        f"a:{at}:{TEXT[at - 1] + ref}:{TEXT[at - 1] + alt}" for at, ref, alt in changes
    ]
    write(tmp_path / "turned.fa", {"a": reverse_complement(TEXT)})
    back = []
    for at, ref, alt in changes:
        pair = [reverse_complement(one + TEXT[at + len(ref)]) for one in (ref, alt)]
        back.append(f"a:{len(TEXT) - at - len(ref)}:{pair[0]}:{pair[1]}")
    found = model.variant_effects(alleles(given), home / "genome.fa")
    turned = model.variant_effects(alleles(back), tmp_path / "turned.fa")
    assert (found["note"] == ".").all() and (abs(found["delta"]) > 1e-4).all()
    swapped = turned.rename(columns={"sum_plus": "sum_minus", "sum_minus": "sum_plus"})
    np.testing.assert_allclose(swapped[VALUES], found[VALUES], atol=1e-6)
    assert (len(TEXT) + 1 - turned["site"] == found["site"]).all()
    assert (turned["strand"] == found["strand"].map({"+": "-", "-": "+"})).all()


@pytest.mark.parametrize("size", [15, 16])
def test_bases_on_either_side_of_a_deletion_are_at_the_same_distance(
    model: Any, home: Path, size: int
) -> None:
    at = next(
        at
        for at in range(200, 250)
        if TEXT[at] != TEXT[at + size] and TEXT[at - 1] != TEXT[at + size - 1]
    )
    (row,) = model.variant_effects(
        alleles([f"a:{at}:{TEXT[at - 1 : at + size]}:{TEXT[at - 1]}"]),
        home / "genome.fa",
    ).itertuples()
    matching = []
    for before in {(WINDOW - size) // 2, (WINDOW - size + 1) // 2}:
        first, end = at - before, at - before + WINDOW
        ref = scored(model, TEXT[first:end])
        begins = scored(model, TEXT[first:at] + TEXT[at + size : end + size]) - ref
        ends = scored(model, TEXT[first - size : at] + TEXT[at + size : end]) - ref
        places = np.arange(first + MARGIN, end - MARGIN)
        side = np.sign(2 * places + 1 - 2 * at - size)[:, None]
        change = np.where(
            side < 0, begins, np.where(side > 0, ends, (begins + ends) / 2)
        )
        number, column = np.unravel_index(abs(change).argmax(), change.shape)
        site = int(places[number])
        same = np.allclose(
            [row.delta, row.sum_plus, row.sum_minus],
            [change[number, column], *change.sum(0)],
        )
        matching.append(same and row.site == site + 1)
    assert sum(matching) == 1


def test_the_form_of_a_record_changes_nothing_and_exchange_of_alleles_changes_the_sign(
    model: Any, home: Path, tmp_path: Path
) -> None:
    given = [f"a:300:{TEXT[299:302]}:{TEXT[299]}", "a:302:ACA:A", "a:304:ACACA:ACA"]
    same = (
        model.variant_effects(alleles(given), home / "genome.fa")[
            [*VALUES, "site", "strand"]
        ]
        .to_numpy()
        .tolist()
    )
    assert same[0] == same[1] == same[2]
    for at, ref, alt in (
        (200, TEXT[200:212], TEXT[200]),
        (200, TEXT[200], "GATTACA"),
        (300, TEXT[300:303], "C"),
    ):
        write(tmp_path / "other.fa", {"a": TEXT[:at] + alt + TEXT[at + len(ref) :]})
        (one,) = model.variant_effects(
            alleles([f"a:{at + 1}:{ref}:{alt}"]), home / "genome.fa"
        ).itertuples()
        (two,) = model.variant_effects(
            alleles([f"a:{at + 1}:{alt}:{ref}"]), tmp_path / "other.fa"
        ).itertuples()
        assert (two.ref_score, two.alt_score) == pytest.approx(
            (one.alt_score, one.ref_score), abs=1e-6
        )
        assert (two.sum_plus, two.sum_minus) == pytest.approx(
            (-one.sum_plus, -one.sum_minus), abs=1e-6
        )


def test_n_and_ends_of_contigs(model: Any, home: Path) -> None:
    long = TEXT[150:270]
    given = [
        ("gap", 240, GAP[239], "ACGT"["ACGT".index(GAP[239]) - 1]),
        ("gap", 260, "N", "A"),
    ]
    given += [
        ("a", 5, TEXT[4], other(4)),
        ("a", 45, TEXT[44], other(44)),
        ("a", 151, long, long[0]),
    ]
    given += [("short", 30, TEXT[29], other(29))]
    found = model.variant_effects(alleles(given), home / "genome.fa")
    assert found["note"].tolist() == [
        ".",
        "REF_UNKNOWN",
        "CONTIG_EDGE",
        "CONTIG_EDGE",
        "TOO_LONG",
        "CONTIG_EDGE",
    ]
    assert (
        found["site"].dropna().between(1, len(TEXT)).all()
        and found["site"].iloc[5] <= 60
    )


def test_ends_are_cut_off_as_in_a_scan(model: Any, tmp_path: Path) -> None:
    """Of a record that both read as a whole."""
    text = TEXT[:61]
    write(tmp_path / "genome.fa", {"a": text})
    for at in (3, 30, 58):
        changed = text[:at] + other(at) + text[at + 1 :]
        ref, alt = model.predict([text, changed])
        (row,) = model.variant_effects(
            alleles([f"a:{at + 1}:{text[at]}:{other(at)}"]), tmp_path / "genome.fa"
        ).itertuples()
        strand, site = "+-".index(row.strand), row.site - 1
        assert row.note == "CONTIG_EDGE"
        assert (row.ref_score, row.alt_score) == pytest.approx(
            (ref[strand, site], alt[strand, site]), abs=1e-6
        )


def test_the_command_writes_what_python_returns(
    model: Any, run: Run, home: Path, tmp_path: Path
) -> None:
    rows = [
        f"a\t{at + 1}\t.\t{TEXT[at]}\t{other(at)}\t.\t.\t.\tGT\t1|1\n"
        for at in (200, 203, 400)
    ]
    head = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tx\n"
    (tmp_path / "x.vcf").write_text(head + "".join(rows))
    words = (
        "score-variants",
        home / "model",
        tmp_path / "x.vcf",
        "--reference",
        home / "genome.fa",
    )
    table = model.variant_effects(tmp_path / "x.vcf", home / "genome.fa")
    assert run(*words, "-o", tmp_path / "x.tsv").code == 0
    written = pd.read_csv(tmp_path / "x.tsv", sep="\t", comment=None, skiprows=4 - 1)
    columns = [
        "ref_score",
        "alt_score",
        "delta",
        "site",
        "strand",
        "sum_plus",
        "sum_minus",
    ]
    assert [*written.columns[-7:]] == columns
    np.testing.assert_allclose(written[VALUES], table[VALUES], rtol=1e-5, atol=1e-9)
    assert written["site"].tolist() == table["site"].tolist()
    lines = run(*words).out.splitlines()
    info = dict(pair.split("=") for pair in lines[-1].split("\t")[7].split(";"))
    assert info["BBD_PROMOTER_SITE"] == str(table["site"].iloc[2])
    assert float(info["BBD_PROMOTER_SUM_MINUS"]) == pytest.approx(
        table["sum_minus"].iloc[2], rel=1e-5, abs=1e-6
    )
    for option in (("--tracks", "*"), ("--offsets", 2)):
        refused(run(*words, *option), 2)
