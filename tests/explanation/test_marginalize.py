"""Marginalization against a plain loop and a known answer; what the command writes and refuses."""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

import bigbird_dna
from bigbird_dna.disk.tables import read_table
from bigbird_dna.errors import UsageError
from bigbird_dna.explanation.marginalize import MARGINALIZATION, marginalize
from bigbird_dna.explanation.mutagenesis import views_of
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.model.directory import load, save
from tests.cli.command import Run, refused
from tests.explanation.models import of_positions, small_model
from tests.golden.messages import fails
from tests.toys import random_dna

QUICK = {"offsets": 1, "tokenizations": 1}
TEXTS = [random_dna(size, size) for size in (60, 61, 60)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("marginalized")
    for kind in ("promoter", "chromatin", "numbers", "pretrained"):
        save(home / kind, small_model(kind), {}, {}, {})
    save(home / "positions", of_positions()[0], {}, {}, {})
    (home / "x.fa").write_text(
        "".join(f">s{number}\n{text}\n" for number, text in enumerate(TEXTS))
    )
    return home


@pytest.mark.parametrize("kind", ["chromatin", "numbers"])
def test_changes_are_those_of_a_plain_loop(
    kind: str, home: Path, tmp_path: Path
) -> None:
    model, motifs = load(home / kind), {"one": "GATTACA", "CCGC": "CCGC"}
    given = ["one=GATTACA", "CCGC"]
    table = bigbird_dna.marginalize(
        home / kind, given, home / "x.fa", tmp_path / "x", start=9, **QUICK
    )

    def score(text: str) -> np.ndarray:
        size = model.settings.window or len(text)
        left = (size - len(text)) // 2
        window = "N" * left + text + "N" * (size - len(text) - left)
        return model.view_scores([window], views_of(model, size, 1, 1))[:, 0].mean(0)

    before = np.array([score(text) for text in TEXTS])
    outputs = ["one", "two"] if kind == "chromatin" else ["x"]
    rows = table.set_index(["motif", "output", "strand"])
    assert len(rows) == 4 * len(outputs)
    for name, motif in motifs.items():
        for strand, site in (("+", motif), ("-", reverse_complement(motif))):
            after = np.array(
                [score(text[:9] + site + text[9 + len(site) :]) for text in TEXTS]
            )
            for column, output in enumerate(outputs):
                row, change = (
                    rows.loc[(name, output, strand)],
                    (after - before)[:, column],
                )
                ends = ttest_1samp(change, 0).confidence_interval()
                means = before[:, column].mean(), after[:, column].mean(), change.mean()
                expected = [len(TEXTS), *means, *ends, (change > 0).mean()]
                np.testing.assert_allclose(row.astype(float), expected, atol=1e-5)
                assert np.ptp(change) > 1e-3


def test_the_changes_of_a_sum_over_bases_are_known(home: Path, tmp_path: Path) -> None:
    """Of a motif in the center of each background, or of shuffled copies, which depend on the seed."""
    weights = of_positions()[1]
    options = {"offsets": 1, "tokenizations": 0}
    table = marginalize(
        home / "positions", "GATTAC", home / "x.fa", tmp_path / "x", **options
    )
    for row, site in zip(table.itertuples(), ("GATTAC", "GTAATC"), strict=True):
        changes = []
        for text in TEXTS:
            first, center = (100 - len(text)) // 2, len(text) // 2 - 3
            for place, base in enumerate(site, center):
                own = weights[first + place]
                changes.append(own["ACGT".index(base)] - own["ACGT".index(text[place])])
        assert row.change == pytest.approx(sum(changes) / len(TEXTS), abs=1e-4)
    whole = tmp_path / "whole.fa"
    whole.write_text(f">a\n{TEXTS[0]}\n")
    shuffled = marginalize(
        home / "positions",
        "GATTAC",
        whole,
        tmp_path / "x",
        shuffles=3,
        seed=1,
        **options,
    )
    other = marginalize(
        home / "positions",
        "GATTAC",
        whole,
        tmp_path / "y",
        shuffles=3,
        seed=2,
        **options,
    )
    again = marginalize(
        home / "positions",
        "GATTAC",
        whole,
        tmp_path / "y",
        shuffles=3,
        seed=1,
        **options,
    )
    assert shuffled.equals(again) and shuffled["backgrounds"].tolist() == [3, 3]
    assert len({*shuffled["before"], *other["before"], table["before"][0]}) == 3


def test_regions_and_files_of_motifs_are_read(
    home: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "genome.fa").write_text(f">a\n{random_dna(400, 3)}\n")
    prepare_reference(tmp_path / "genome.fa", tmp_path / "genome.fa.gz")
    (tmp_path / "x.bed").write_text("a\t150\t190\na\t200\t240\ty\t0\t-\n")
    (tmp_path / "m.fa").write_text(">one\nGATTACA\n>two\nCCG\n")
    words = [
        "marginalize",
        home / "chromatin",
        tmp_path / "m.fa",
        tmp_path / "x.bed",
        "--tracks",
        "two",
    ]
    words += [
        "--reference",
        tmp_path / "genome.fa.gz",
        "--offsets",
        "1",
        "--tokenizations",
        "0",
    ]
    result = run(*words, "--threads", "1", "-o", tmp_path / "out")
    assert result.code == 0, result.err
    table = read_table(tmp_path / "out" / "marginalization.tsv", MARGINALIZATION)
    assert (
        Counter(table["output"]) == {"two": 4}
        and table["motif"].tolist() == ["one"] * 2 + ["two"] * 2
    )
    assert (tmp_path / "out" / "marginalization.svg").read_text().startswith("<?xml")
    one = tmp_path / "one.fa"
    one.write_text(f">a\n{TEXTS[0]}\n")
    alone = marginalize(home / "promoter", "CCG", one, tmp_path / "alone", **QUICK)
    assert pd.isna(alone["change_low"]).all() and alone["change"].notna().all()


def test_what_cannot_be_inserted_is_refused_and_nothing_written(
    home: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "long.fa").write_text(f">x\n{random_dna(101, 1)}\n")
    promoter, given = home / "promoter", home / "x.fa"
    for code, *words in (
        (1, promoter, "A" * 61, given),
        (1, promoter, "ACG", given, "--start", "58"),
        (2, promoter, "ACG", given, "--start", "-1"),
        (2, promoter, "ACG", given, "--shuffles", "-1"),
        (2, promoter, "ACG,", given),
        (2, promoter, "one=ACGR", given),
        (2, promoter, "one=ACG,one=CCC", given),
        (2, promoter, tmp_path / "none.fa", given),
        (1, promoter, "ACG", tmp_path / "long.fa"),
        (2, promoter, "ACG", given, "--offsets", "33"),
        (2, home / "chromatin", "ACG", given, "--tracks", "three"),
        (1, home / "pretrained", "ACG", given),
    ):
        refused(
            run("marginalize", *words, "-o", tmp_path / "out"), code, after_log=True
        )
        assert not (tmp_path / "out").exists()
    with fails(UsageError):
        marginalize(promoter, [], given, tmp_path / "out")


def test_a_list_of_motifs_may_be_longer_than_a_file_name(
    home: Path, tmp_path: Path, run: Run
) -> None:
    motifs = [f"$motif_{number}${'='}{random_dna(10, number)}" for number in range(60)]
    words = [
        "marginalize",
        home / "numbers",
        ",".join(motifs),
        home / "x.fa",
        "-o",
        tmp_path / "out",
    ]
    assert run(*words, "--offsets", 1, "--tokenizations", 1).code == 0
    found = read_table(tmp_path / "out/marginalization.tsv", MARGINALIZATION)
    assert list(dict.fromkeys(found["motif"])) == [
        f"$motif_{number}$" for number in range(60)
    ]
    refused(run(*words[:2], "A" * 300 + "X", *words[3:5], tmp_path / "other"), 2, "'X'")
