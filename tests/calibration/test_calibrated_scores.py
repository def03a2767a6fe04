"""Calibration of promoter models and thresholds; what `--calibrated` writes."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bigbird_dna
from bigbird_dna.calibration.maps import (
    FILE,
    CalibratedTrack,
    Calibration,
    Isotonic,
    Platt,
    read_calibration,
    write_calibration,
)
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import check_directory
from bigbird_dna.errors import ModelError
from bigbird_dna.model.directory import load, save
from tests.calibration.sources import write_predictions
from tests.cli.command import Run, refused
from tests.golden.messages import fails, message
from tests.test_public_api import home as home
from tests.toys import random_dna

LINE = CalibratedTrack(map=Platt(slope=0.6, intercept=-0.8), positives=40, negatives=60)
CURVE = CalibratedTrack(
    map=Isotonic(scores=(0.2, 0.45, 0.55, 0.8), probabilities=(0.01, 0.1, 0.3, 0.9)),
    positives=20,
    negatives=180,
)


@pytest.fixture(scope="module")
def calibrated(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`promoter` and `chromatin`: the models of `home`, with calibrations."""
    directory = tmp_path_factory.mktemp("calibrated")
    maps: dict[str, dict[str | None, CalibratedTrack]] = {
        "promoter": {None: LINE},
        "chromatin": {"one": LINE, "two": CURVE},
    }
    for name, fitted in maps.items():
        shutil.copytree(home / name, directory / name)
        weights = checksum(home / name / "model.safetensors")
        write_calibration(
            directory / name / FILE, Calibration.of(fitted, {"split": "valid"}), weights
        )
    return directory


def _table(path: Path) -> pd.DataFrame:
    lines = path.read_text().splitlines()
    skipped = sum(line.startswith("##") for line in lines)
    return pd.read_csv(path, sep="\t", skiprows=skipped, na_values=["NA", "."])


def _mapped(raw: np.ndarray) -> np.ndarray:
    return np.stack([LINE.map(raw[..., 0]), CURVE.map(raw[..., 1])], -1)


def test_promoter_scores_are_the_model_s_after_its_map(
    run: Run, calibrated: Path, home: Path, tmp_path: Path
) -> None:
    words = (
        "score-promoters",
        calibrated / "promoter",
        home / "genome.fa.gz",
        "--stride",
        30,
    )
    found = {}
    for name, more in (
        ("raw", ()),
        ("line", ("--calibrated",)),
    ):
        assert run(*words, *more, "-o", tmp_path / name).code == 0
        found[name] = _table(tmp_path / name)
    raw = found["raw"]["score"].to_numpy()
    assert np.ptp(raw) > 0.05  # else the rest says nothing
    line = LINE.map(raw)
    assert found["line"]["score"].to_numpy() == pytest.approx(line, abs=2e-6)
    # All but the scores, and the order of these, is as it was.
    for table in found.values():
        assert table.drop(columns="score").equals(found["raw"].drop(columns="score"))
        assert (table["score"].rank() == found["raw"]["score"].rank()).mean() > 0.95
    head = (tmp_path / "line").read_text().splitlines()[2]
    assert head.endswith("--max-n 0.25 --calibrated")
    assert "--calibrated" not in (tmp_path / "raw").read_text()


def test_scores_without_the_option_are_the_same_bytes_with_a_calibration(
    run: Run, calibrated: Path, home: Path, tmp_path: Path
) -> None:
    shutil.copytree(calibrated / "promoter", tmp_path / "promoter")
    (tmp_path / "promoter" / FILE).write_text("no calibration")  # nobody asks for it
    written = []
    for model in (home / "promoter", tmp_path / "promoter"):
        assert (
            run(
                "score-promoters", model, home / "genome.fa.gz", "-o", tmp_path / "out"
            ).code
            == 0
        )
        written.append((tmp_path / "out").read_text().replace(str(model), "MODEL"))
    assert written[0] == written[1]


def test_python_has_the_same_numbers(
    calibrated: Path, home: Path, tmp_path: Path
) -> None:
    model, plain = (
        bigbird_dna.load(place / "promoter") for place in (calibrated, home)
    )
    windows = [random_dna(60, seed) for seed in range(8)]
    raw = plain.predict(windows)
    assert (model.predict(windows) == raw).all()
    assert (
        model.predict(windows, calibrated=True) == LINE.map(raw).astype(np.float32)
    ).all()


def test_each_track_has_its_own_map_before_regions_are_summed_up(
    run: Run, calibrated: Path, home: Path, tmp_path: Path
) -> None:
    model, plain = (
        bigbird_dna.load(place / "chromatin") for place in (calibrated, home)
    )
    windows = [random_dna(120, seed) for seed in range(8)]
    raw = plain.predict(windows)
    assert (
        model.predict(windows, calibrated=True) == _mapped(raw).astype(np.float32)
    ).all()
    words = (
        "predict-tracks",
        calibrated / "chromatin",
        home / "regions.bed",
        "--calibrated",
    )
    words += (
        "--reference",
        home / "genome.fa.gz",
        "--summary",
        "mean",
        "-o",
        tmp_path / "out",
    )
    assert run(*words).code == 0
    found = _table(tmp_path / "out")
    assert "--calibrated" in (tmp_path / "out").read_text()
    # The second region has four bins of 20 bp around its middle: their mean is that of mapped numbers.
    starts = np.arange(295, 375, 20)
    bins = pd.DataFrame({"contig": "a", "start": starts, "end": starts + 20})
    single = plain.predict_regions(bins, home / "genome.fa.gz")[
        ["one", "two"]
    ].to_numpy()
    assert found[["one", "two"]].to_numpy()[1] == pytest.approx(
        _mapped(single).mean(0), abs=2e-6
    )
    asked = model.predict_regions(
        home / "regions.bed", home / "genome.fa.gz", summary="mean", calibrated=True
    )
    assert asked[["one", "two"]].to_numpy() == pytest.approx(
        found[["one", "two"]].to_numpy(), abs=1e-6
    )


def test_effects_are_those_of_calibrated_probabilities_of_alleles(
    calibrated: Path, home: Path
) -> None:
    genome, vcf = home / "genome.fa.gz", home / "x.vcf"
    model, plain = (
        bigbird_dna.load(place / "chromatin") for place in (calibrated, home)
    )
    raw, line = (
        loaded.variant_effects(vcf, genome, tracks="one", offsets=2, **more)[
            "one:logodds"
        ][0]
        for loaded, more in ((plain, {}), (model, {"calibrated": True}))
    )
    # A line on log-odds multiplies their difference; which alleles' mean it was applied to would change that.
    assert abs(raw) > 1e-4
    assert line == pytest.approx(0.6 * raw, rel=1e-3)
    two = [
        loaded.variant_effects(vcf, genome, tracks=name, offsets=2, calibrated=True)[
            "two:delta"
        ][0]
        for loaded, name in ((model, "two"), (model, "*"))
    ]
    assert two[0] == two[1]  # of a chosen track alone, its own map


def test_score_variants_writes_them(
    run: Run, calibrated: Path, home: Path, tmp_path: Path
) -> None:
    for name in ("chromatin",):
        words = (
            "score-variants",
            calibrated / name,
            home / "x.vcf",
            "--reference",
            home / "genome.fa.gz",
        )
        for file, options in (("raw", ()), ("calibrated", ("--calibrated",))):
            assert (
                run(*words, *options, "--format", "tsv", "-o", tmp_path / file).code
                == 0
            )
        raw, found = ((tmp_path / file).read_text() for file in ("raw", "calibrated"))
        assert raw != found and "--calibrated" in found and "--calibrated" not in raw


def test_a_model_without_a_calibration_says_how_to_get_one(
    run: Run, calibrated: Path, home: Path, tmp_path: Path
) -> None:
    genome, out = home / "genome.fa.gz", ("-o", tmp_path / "out")
    found = run("score-promoters", home / "promoter", genome, "--calibrated", *out)
    refused(found, 1, home / "promoter", "bigbird-dna model calibrate")
    words = (home / "regions.bed", "--reference", genome, "--calibrated", *out)
    found = run("predict-tracks", home / "chromatin", *words)
    refused(found, 1, "bigbird-dna model calibrate")
    with fails(ModelError, home / "promoter"):
        bigbird_dna.load(home / "promoter").predict("ACGT" * 15, calibrated=True)
    assert list(tmp_path.iterdir()) == []


def test_a_calibration_of_another_model_is_refused(
    run: Run, calibrated: Path, home: Path, tmp_path: Path
) -> None:
    for name in ("promoter", "ensemble"):
        model = tmp_path / name
        shutil.copytree(home / name, model)
        shutil.copyfile(calibrated / "chromatin" / FILE, model / FILE)
        with fails(ModelError):
            bigbird_dna.load(model).predict(
                "ACGT" * (15 if name == "promoter" else 30), calibrated=True
            )


# Calibration of promoter models, and thresholds, on models whose predictions come from a known source


@pytest.fixture
def model(home: Path, tmp_path: Path) -> Path:
    """A promoter model as training leaves it, but for its calibration."""
    write_predictions(tmp_path / "predictions.parquet")
    found = load(home / "promoter")
    extra = {"predictions.parquet": tmp_path / "predictions.parquet"}
    save(tmp_path / "model", found, {"seed": 1}, {"test": {}}, extra)
    return tmp_path / "model"


def _content(model: Path) -> dict[str, str]:
    return {
        path.name: checksum(path)
        for path in model.iterdir()
        if path.name != ".bigbird-dna.json"
    }


@pytest.mark.parametrize("copied", [False, True])
def test_a_calibration_is_put_into_the_model_or_a_copy_and_nothing_else_changes(
    run: Run, model: Path, tmp_path: Path, copied: bool
) -> None:
    before, original = _content(model), model
    if copied:
        model = tmp_path / "new"
    result = run("model calibrate", original, *(("-o", model) if copied else ()))
    assert (result.code, result.out) == (0, "")
    message(result.err.splitlines()[-1].partition("  ")[2], model, 600)
    assert not copied or _content(original) == before
    after = _content(model)
    assert after.pop(FILE) and after == before
    found = read_calibration(model / FILE, load(model).sha256)
    (track,) = found.tracks
    assert (track.positives, track.negatives) == (300, 300)
    assert found.fitted_on["contigs"] == ["valid"] and found.fitted_on[
        "negative_sets"
    ] == ["genomic"]
    # It turns the source's distortion round (see `mixture`).
    assert track.map.slope == pytest.approx(1 / 1.6, rel=0.25)  # type: ignore[union-attr]
    # The directory is still one that an earlier run wrote, and that the next one may replace; and again.
    check_directory(model)
    assert run("model calibrate", model, "--method", "isotonic").code == 0
    assert read_calibration(model / FILE).tracks[0].map.method == "isotonic"
    check_directory(model)


def test_it_is_fitted_on_validation_windows_alone(
    run: Run, model: Path, tmp_path: Path
) -> None:
    assert run("model calibrate", model).code == 0
    whole = (model / FILE).read_bytes()
    rows = pd.read_parquet(model / "predictions.parquet")
    rows.loc[rows["split"] == "test", "probability"] = 0.5
    rows.to_parquet(tmp_path / "other.parquet", index=False)
    assert (
        run(
            "model calibrate",
            model,
            "--predictions",
            tmp_path / "other.parquet",
        ).code
        == 0
    )
    assert (model / FILE).read_bytes() == whole
    rows.loc[rows["split"] == "valid", "probability"] **= 2
    rows.to_parquet(tmp_path / "other.parquet", index=False)
    assert (
        run(
            "model calibrate",
            model,
            "--predictions",
            tmp_path / "other.parquet",
        ).code
        == 0
    )
    assert (model / FILE).read_bytes() != whole


def test_what_cannot_be_calibrated_is_refused(
    run: Run, model: Path, home: Path, tmp_path: Path
) -> None:
    few = tmp_path / "few.parquet"

    def check(*words: object, named: object, code: int = 1) -> None:
        refused(run("model calibrate", *words), code, named)

    write_predictions(few, n=18)
    check(model, "--predictions", few, named=few)
    write_predictions(few, n=18, valid="train")
    check(model, "--predictions", few, named=few)
    few.unlink()
    check(model, "--predictions", few, named=few)
    check(home / "promoter", named="predictions.parquet")
    check(home / "chromatin", named=home / "chromatin")
    assert run("model calibrate", model, "--method", "beta").code == 2
    check(model, "-o", model, named=model, code=2)
    check("nowhere", named="nowhere")
    assert not (model / FILE).exists()


def test_predictions_of_another_task_are_refused(
    run: Run, model: Path, tmp_path: Path
) -> None:
    values = json.loads((model / "config.json").read_text())
    values["settings"]["negative_set"] = "permuted"
    (model / "config.json").write_text(json.dumps(values))
    provenance = json.loads((model / "provenance.json").read_text())
    provenance["files"]["config.json"] = checksum(model / "config.json")
    (model / "provenance.json").write_text(json.dumps(provenance))
    refused(run("model calibrate", model), 1, "'genomic'", "'permuted'")


def test_a_model_of_the_package_is_not_changed(run: Run) -> None:
    refused(run("model calibrate yeast-promoters"), 2, "yeast-promoters")
