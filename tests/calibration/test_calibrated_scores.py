"""What `--calibrated` and `--prior` make of scores, by commands and in Python."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bigbird_dna
from bigbird_dna.calibration.maps import FILE, shift_prior
from bigbird_dna.errors import ModelError, UsageError
from tests.calibration.conftest import CURVE, LINE
from tests.cli.command import Run, refused
from tests.golden.messages import fails, message
from tests.toys import random_dna


def _table(path: Path) -> pd.DataFrame:
    lines = path.read_text().splitlines()
    skipped = sum(line.startswith("##") for line in lines)
    return pd.read_csv(path, sep="\t", skiprows=skipped, na_values=["NA", "."])


def _mapped(raw: np.ndarray) -> np.ndarray:
    return np.stack([LINE.map(raw[..., 0]), CURVE.map(raw[..., 1])], -1)


def test_promoter_scores_are_the_model_s_after_its_map(
    run: Run, calibrated: Path, home: Path, tmp_path: Path
) -> None:
    words = ("score-promoters", calibrated / "promoter", home / "genome.fa.gz", "--stride", 30)
    found = {}
    for name, more in (("raw", ()), ("line", ("--calibrated",)), ("rare", ("--calibrated", "--prior", 0.01))):
        assert run(*words, *more, "-o", tmp_path / name).code == 0
        found[name] = _table(tmp_path / name)
    raw = found["raw"]["score"].to_numpy()
    assert np.ptp(raw) > 0.05  # else the rest says nothing
    line = LINE.map(raw)
    assert found["line"]["score"].to_numpy() == pytest.approx(line, abs=2e-6)
    assert found["rare"]["score"].to_numpy() == pytest.approx(shift_prior(line, 0.4, 0.01), abs=2e-6)
    # All but the scores, and the order of these, is as it was.
    for table in found.values():
        assert table.drop(columns="score").equals(found["raw"].drop(columns="score"))
        assert (table["score"].rank() == found["raw"]["score"].rank()).mean() > 0.95
    head = (tmp_path / "rare").read_text().splitlines()[2]
    assert head.endswith("--max-n 0.25 --prior 0.01 --calibrated")
    assert "--calibrated" not in (tmp_path / "raw").read_text()


def test_scores_without_the_option_are_the_same_bytes_with_a_calibration(
    run: Run, calibrated: Path, home: Path, tmp_path: Path
) -> None:
    shutil.copytree(calibrated / "promoter", tmp_path / "promoter")
    (tmp_path / "promoter" / FILE).write_text("no calibration")  # nobody asks for it
    written = []
    for model in (home / "promoter", tmp_path / "promoter"):
        assert run("score-promoters", model, home / "genome.fa.gz", "-o", tmp_path / "out").code == 0
        written.append((tmp_path / "out").read_text().replace(str(model), "MODEL"))
    assert written[0] == written[1]


def test_python_has_the_same_numbers(calibrated: Path, home: Path, tmp_path: Path) -> None:
    model, plain = (bigbird_dna.load(place / "promoter") for place in (calibrated, home))
    windows = [random_dna(60, seed) for seed in range(8)]
    raw = plain.predict(windows)
    assert (model.predict(windows) == raw).all()
    assert (model.predict(windows, calibrated=True) == LINE.map(raw).astype(np.float32)).all()
    expected = shift_prior(LINE.map(raw), 0.4, 0.2).astype(np.float32)
    assert (model.predict(windows, calibrated=True, prior=0.2) == expected).all()
    genome, regions = home / "genome.fa.gz", [("a", 100, 160, "+"), ("a", 300, 500, "-")]
    one, other = (
        loaded.predict_regions(regions, genome, **more)
        for loaded, more in ((plain, {}), (model, {"calibrated": True, "prior": 0.2}))
    )
    mapped = shift_prior(LINE.map(one["score"].to_numpy()), 0.4, 0.2)
    assert other["score"].to_numpy() == pytest.approx(mapped, rel=1e-6)
    assert (one["site"] == other["site"]).all()


def test_each_track_has_its_own_map_before_regions_are_summed_up(
    run: Run, calibrated: Path, home: Path, tmp_path: Path
) -> None:
    model, plain = (bigbird_dna.load(place / "chromatin") for place in (calibrated, home))
    windows = [random_dna(120, seed) for seed in range(8)]
    raw = plain.predict(windows)
    assert (model.predict(windows, calibrated=True) == _mapped(raw).astype(np.float32)).all()
    words = ("predict-tracks", calibrated / "chromatin", home / "regions.bed", "--calibrated")
    words += ("--reference", home / "genome.fa.gz", "--summary", "mean", "-o", tmp_path / "out")
    assert run(*words).code == 0
    found = _table(tmp_path / "out")
    assert "--calibrated" in (tmp_path / "out").read_text()
    # The second region has four bins of 20 bp around its middle: their mean is that of mapped numbers.
    bins = [("a", start, start + 20) for start in range(295, 375, 20)]
    single = plain.predict_regions(bins, home / "genome.fa.gz")[["one", "two"]].to_numpy()
    assert found[["one", "two"]].to_numpy()[1] == pytest.approx(_mapped(single).mean(0), abs=2e-6)
    asked = model.predict_regions(
        home / "regions.bed", home / "genome.fa.gz", summary="mean", calibrated=True
    )
    assert asked[["one", "two"]].to_numpy() == pytest.approx(found[["one", "two"]].to_numpy(), abs=1e-6)


def test_effects_are_those_of_calibrated_probabilities_of_alleles(calibrated: Path, home: Path) -> None:
    genome, vcf = home / "genome.fa.gz", home / "x.vcf"
    model, plain = (bigbird_dna.load(place / "chromatin") for place in (calibrated, home))
    raw, line = (
        loaded.variant_effects(vcf, genome, tracks="one", values="log_odds", offsets=2, **more)["one"][0]
        for loaded, more in ((plain, {}), (model, {"calibrated": True}))
    )
    # A line on log-odds multiplies their difference; which alleles' mean it was applied to would change that.
    assert abs(raw) > 1e-4
    assert line == pytest.approx(0.6 * raw, rel=1e-3)
    two = [
        loaded.variant_effects(vcf, genome, tracks=name, offsets=2, calibrated=True)["two"][0]
        for loaded, name in ((model, "two"), (model, "*"))
    ]
    assert two[0] == two[1]  # of a chosen track alone, its own map
    model, plain = (bigbird_dna.load(place / "promoter") for place in (calibrated, home))
    one, other = (
        loaded.variant_effects(vcf, genome, **more)
        for loaded, more in ((plain, {}), (model, {"calibrated": True, "prior": 0.01}))
    )
    for name in ("ref_score", "alt_score"):
        assert other[name][0] < one[name][0]
    assert other["delta"][0] == pytest.approx(other["alt_score"][0] - other["ref_score"][0])


def test_score_variants_writes_them(run: Run, calibrated: Path, home: Path, tmp_path: Path) -> None:
    for name, more in (("chromatin", ()), ("promoter", ("--prior", 0.1))):
        words = ("score-variants", calibrated / name, home / "x.vcf", "--reference", home / "genome.fa.gz")
        for file, options in (("raw", ()), ("calibrated", ("--calibrated", *more))):
            assert run(*words, *options, "--format", "tsv", "-o", tmp_path / file).code == 0
        raw, found = ((tmp_path / file).read_text() for file in ("raw", "calibrated"))
        assert raw != found and "--calibrated" in found and "--calibrated" not in raw


def test_pieces_are_those_of_one_calibration(run: Run, calibrated: Path, home: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(calibrated / "promoter", model)
    words = ("score-promoters", model, home / "genome.fa.gz", "--calibrated")
    assert run(*words, "-o", tmp_path / "whole").code == 0
    for number in (1, 2):
        assert run(*words, "--shard", f"{number}/2", "-o", tmp_path / f"{number}").code == 0
    merged = ("merge-shards", tmp_path / "1", tmp_path / "2", "-o", tmp_path / "merged")
    assert run(*merged).code == 0
    assert (tmp_path / "merged").read_bytes() == (tmp_path / "whole").read_bytes()
    shutil.copyfile(calibrated / "promoter" / FILE, model / FILE)
    content = (model / FILE).read_text()
    (model / FILE).write_text(content.replace('"split": "valid"', '"split":  "valid"'))  # other bytes
    assert run(*words, "--shard", "2/2", "-o", tmp_path / "2").code == 0
    refused(run(*merged), 1, "calibration.json")


@pytest.mark.parametrize(
    ("more", "prior"),
    [((), 0.1), *((("--calibrated",), prior) for prior in (0.0, 1.5, float("nan")))],
    ids=str,
)
def test_priors_that_mean_nothing_are_refused(
    run: Run, calibrated: Path, home: Path, tmp_path: Path, more: tuple[str, ...], prior: float
) -> None:
    genome, more = home / "genome.fa.gz", (*more, "--prior", str(prior), "-o", str(tmp_path / "out"))
    one = refused(run("score-promoters", calibrated / "promoter", genome, *more), 2)
    words = ("score-variants", calibrated / "promoter", home / "x.vcf", "--reference", genome)
    assert message(one, prior) == refused(run(*words, *more, "--format", "vcf"), 2)
    assert not (tmp_path / "out").exists()


def test_a_model_without_a_calibration_says_how_to_get_one(
    run: Run, calibrated: Path, home: Path, tmp_path: Path
) -> None:
    genome, out = home / "genome.fa.gz", ("-o", tmp_path / "out")
    found = run("score-promoters", home / "promoter", genome, "--calibrated", *out)
    message(refused(found, 1), home / "promoter", "bigbird-dna model calibrate-promoter")
    words = (home / "regions.bed", "--reference", genome, "--calibrated", *out)
    found = run("predict-tracks", home / "chromatin", *words)
    message(refused(found, 1), "bigbird-dna model calibrate-chromatin")
    words = ("score-variants", calibrated / "chromatin", home / "x.vcf", "--reference", genome)
    found = run(*words, "--calibrated", "--prior", 0.1, "-o", tmp_path / "v.vcf")
    message(refused(found, 2), 0.1, calibrated / "chromatin")
    with fails(ModelError, home / "promoter"):
        bigbird_dna.load(home / "promoter").predict("ACGT" * 15, calibrated=True)
    with fails(UsageError, 0.1):
        bigbird_dna.load(calibrated / "promoter").predict("ACGT" * 15, prior=0.1)
    assert list(tmp_path.iterdir()) == []


def test_a_calibration_of_another_model_is_refused(
    run: Run, calibrated: Path, home: Path, tmp_path: Path
) -> None:
    for name in ("promoter", "ensemble"):
        model = tmp_path / name
        shutil.copytree(home / name, model)
        shutil.copyfile(calibrated / "chromatin" / FILE, model / FILE)
        with fails(ModelError):
            bigbird_dna.load(model).predict("ACGT" * (15 if name == "promoter" else 30), calibrated=True)
