"""Explanations of start sites: which site, window and bases of regions, variants and sequences."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

import bigbird_dna
from bigbird_dna.errors import UsageError
from bigbird_dna.explanation.mutagenesis import saturation_mutagenesis, views_of
from bigbird_dna.explanation.one_hot import gradient_mutations
from bigbird_dna.explanation.targets import (
    ExplainedWindow,
    chosen_outputs,
    output_names,
    read_targets,
)
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.model.batching import View
from bigbird_dna.model.directory import save
from tests.cli.command import Run, refused
from tests.golden.messages import fails
from tests.scoring.test_promoter_scan import write
from tests.scoring.test_start_site_effects import TEXT
from tests.toys import SITE_MOTIF, motif_model, random_dna, start_site_model

UPSTREAM = 260  # bp of a window before its site


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("sites")
    model = start_site_model(window=520, margin=60, max_length=512)
    save(home / "model", model, {}, {}, {})
    write(home / "genome.fa", {"a": TEXT * 2})
    return home


@pytest.fixture(scope="module")
def model(home: Path) -> Any:
    return bigbird_dna.load(home / "model")


GENOME = TEXT * 2


def around(site: int, strand: str) -> str:
    if strand == "+":
        return GENOME[site - UPSTREAM : site + 520 - UPSTREAM]
    return reverse_complement(GENOME[site - 519 + UPSTREAM : site + UPSTREAM + 1])


def targets(
    model: Any, home: Path, text: str, name: str = "x.bed", **options: Any
) -> list[Any]:
    (home / name).write_text(text)
    reference = None if name.endswith(".fa") else home / "genome.fa"
    return read_targets(home / name, model, reference, **options)


def test_a_region_of_one_base_is_a_start_site_on_its_strand(
    model: Any, home: Path
) -> None:
    for strand in "+-":
        (one,) = targets(model, home, f"a\t600\t601\tx\t0\t{strand}\n")
        assert (one.window, one.site, one.strand) == (around(600, strand), 600, strand)
        assert (one.first, one.last) == (UPSTREAM - 150, UPSTREAM + 50)
        bases = [GENOME[one.positions[at]] for at in range(200)]
        assert one.bases == (
            "".join(bases) if strand == "+" else "".join(bases).translate(PAIRS)
        )
        assert one.positions[150] == 600
        assert model.view_scores([one.window], [View(False)])[0, 0, 0] != 0


PAIRS = str.maketrans("ACGT", "TGCA")


def test_the_strongest_start_site_of_a_region_is_explained(
    model: Any, home: Path
) -> None:
    start, end = 500, 580
    first = (start + end - 520) // 2
    probs = model.window_probabilities([GENOME[first : first + 520]])[0]
    for strand, given in (("+", "+"), ("-", "-"), ("+-", ".")):
        sites = {
            (site, way): probs["+-".index(way), site - first]
            for way in strand
            for site in range(start, end)
        }
        (one,) = targets(model, home, f"a\t{start}\t{end}\tx\t0\t{given}\n")
        assert (one.site, one.strand) == max(sites, key=lambda site: sites[site])
        assert one.window == around(one.site, one.strand)
        assert sorted(one.positions) == [*range(start, end)]


def test_sequences_are_padded_around_their_strongest_start_site(
    model: Any, home: Path
) -> None:
    for text in (GENOME[200:500], GENOME[100:620]):
        (one,) = targets(model, home, f">x\n{text}\n", "x.fa")
        assert (
            len(one.window) == 520
            and one.bases in text
            and one.window[UPSTREAM] == text[one.site]
        )
        assert one.bases == text[one.start : one.start + len(one.bases)]
        assert one.positions[0] == one.start


@pytest.mark.parametrize(
    ("ref", "alt"),
    [
        (GENOME[599:600], "ACGT"["ACGT".index(GENOME[599]) - 1]),
        (GENOME[599:606], GENOME[599]),
    ],
)
def test_alleles_are_explained_at_the_start_site_that_changes_most(
    model: Any, home: Path, ref: str, alt: str
) -> None:
    columns = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"
    text = f"##fileformat=VCFv4.2\n{columns}\na\t600\tv\t{ref}\t{alt}\t.\t.\t.\n"
    one, two = targets(model, home, text, "x.vcf", flank=20)
    (effect,) = model.variant_effects(home / "x.vcf", home / "genome.fa").itertuples()
    assert (
        one.site == two.site == effect.site - 1
        and one.strand == two.strand == effect.strand
    )
    changed = GENOME[:599] + alt + GENOME[599 + len(ref) :]
    windows = (
        [one.window, two.window]
        if one.strand == "+"
        else [*map(reverse_complement, (one.window, two.window))]
    )
    assert windows[0] in GENOME and windows[1] in changed
    assert one.window == around(one.site, one.strand)
    assert (
        len(one.bases) == len(ref) - (len(ref) > 1) + 40
        and len(two.bases) == len(alt) - (len(ref) > 1) + 40
    )


@pytest.mark.parametrize("method", ["mutagenesis", "gradient"])
def test_an_explained_score_is_that_of_a_scan(
    model: Any, tmp_path: Path, method: str
) -> None:
    """Also near the ends of a record, which is not filled with N."""
    text = GENOME[:200]
    write(tmp_path / "genome.fa", {"a": text})
    sites = [(20, "+"), (100, "-"), (190, "+")]
    (tmp_path / "x.bed").write_text(
        "".join(f"a\t{at}\t{at + 1}\tx\t0\t{strand}\n" for at, strand in sites)
    )
    for target, (site, strand) in zip(
        read_targets(tmp_path / "x.bed", model, tmp_path / "genome.fa"),
        sites,
        strict=True,
    ):
        window = target.window
        ends = (
            len(window) - len(window.lstrip("N")),
            len(window) - len(window.rstrip("N")),
        )
        views = views_of(model, len(window), 1, 0, ends)
        work = {"mutagenesis": saturation_mutagenesis, "gradient": gradient_mutations}
        scores = work[method](model, target, [0], views).scores[:, 0]
        probs = 1 / (1 + np.exp(-scores))
        expected = model.predict(text)[0]["+-".index(strand), site]
        assert probs.mean() == pytest.approx(expected, abs=1e-6)


def test_gradients_agree_with_mutagenesis() -> None:
    """On what each substitution around a site does, and that the bases of its motif matter most."""
    model = motif_model()
    window = random_dna(120, 5)
    window = window[:51] + SITE_MOTIF + window[59:]  # the site is base 60
    target = ExplainedWindow("x", "x", 40, "+", window, 40, 70, site=60)
    for view in (View(), View(turned=True)):
        exact, slopes = (
            work(model, target, [0], [view]).substitutions[0, ..., 0]
            for work in (saturation_mutagenesis, gradient_mutations)
        )
        motif = np.zeros(30, bool)
        motif[11:19] = True
        assert (exact[motif].min(1) < -3).all() and abs(exact[~motif]).max() < 1
        assert (np.sign(slopes[motif].min(1)) == -1).all()
        np.testing.assert_allclose(slopes[motif], exact[motif], atol=1)
        assert spearmanr(slopes.ravel(), exact.ravel()).statistic > 0.6


def test_the_command_explains_a_start_site(
    model: Any, run: Run, home: Path, tmp_path: Path
) -> None:
    assert [
        output_names(model)[column] for column in chosen_outputs(model, None, 1)
    ] == ["TSS"]
    with fails(UsageError):
        chosen_outputs(model, "TSS", 1)
    (home / "one.bed").write_text("a\t600\t601\tx\t0\t-\n")
    words = (
        "explain",
        home / "model",
        home / "one.bed",
        "--reference",
        home / "genome.fa",
    )
    options = ("--method", "gradient", "-o", tmp_path / "site")
    assert run(*words, *options).code == 0
    (row,) = pd.read_csv(
        tmp_path / "site/scores.tsv", sep="\t", keep_default_na=False
    ).itertuples()
    assert (row.output, row.site) == ("TSS", "a:600(-)")
    bases = pd.read_csv(tmp_path / "site/bases.tsv", sep="\t")
    assert len(bases) == 200 and (bases["strand"] == "-").all()
    views = [View(False), View(False, phase=64), View(True), View(True, phase=64)]
    scores = model.view_scores([around(600, "-")], views)[:, 0, 0]
    assert row.score == pytest.approx(scores.mean(), abs=1e-4)
    refused(run(*words, "--tracks", "TSS", "-o", tmp_path / "x"), 2, "one output")
