"""The models that come with the package: they score and embed as they are, as well as their figures say."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import bigbird_dna
from bigbird_dna.calibration.maps import FILE, read_calibration
from bigbird_dna.config import load_config
from bigbird_dna.data.predictions import CalibrationRows, read_predictions
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.promoters import place, read_promoters
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import Interval, inside, window_around
from bigbird_dna.metrics.reliability import calibration_metrics
from bigbird_dna.model.directory import load_pretrained
from bigbird_dna.model.model import METRICS
from bigbird_dna.pretraining.sampling import HeldOut
from bigbird_dna.tokens.encode import tokenize
from bigbird_dna.tokens.store import TokenStore
from tests.cli.command import Run
from tests.conftest import REPOSITORY

CONFIG = REPOSITORY / "workflow/config/yeast.yaml"
ENCODER, PROMOTERS = (REPOSITORY / "resources/models" / name for name in ("yeast", "yeast-promoters"))


@pytest.fixture(scope="module")
def yeast(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("yeast") / "reference.fa.gz"
    prepare_reference(next((shared_data / "yeast").glob("Saccharomyces*.fa.gz")), path)
    return path


def sequences(count: int, length: int) -> list[str]:
    codes = np.random.default_rng(1).integers(4, size=(count, length))
    return ["".join("ACGT"[code] for code in row) for row in codes]


def test_bundled_models_score_and_embed_by_their_names() -> None:
    encoder, promoters = bigbird_dna.load("yeast"), bigbird_dna.load("yeast-promoters")
    windows = sequences(5, 400)
    scores = promoters.predict(windows)
    assert scores.shape == (5,) and ((scores > 0) & (scores < 1)).all()
    assert promoters.predict(windows[2:3])[0] == pytest.approx(scores[2], abs=1e-6)
    for model in (encoder, promoters):
        vectors = model.embed(sequences(3, 1000))
        assert vectors.shape == (3, 128) and np.isfinite(vectors).all()


def test_the_classifier_is_calibrated_as_its_own_predictions_say(run: Run, tmp_path: Path) -> None:
    """So calibrated scores and thresholds are there as soon as the package is."""
    assert run("model calibrate-promoter", PROMOTERS, "-o", tmp_path / "again").code == 0
    calibration = read_calibration(PROMOTERS / FILE, checksum(PROMOTERS / "model.safetensors"))
    again = read_calibration(tmp_path / "again" / FILE, checksum(PROMOTERS / "model.safetensors"))
    assert again.fitted_on == calibration.fitted_on
    some = np.linspace(0.01, 0.99, 99)  # the last digits differ between processors
    np.testing.assert_allclose(again(some), calibration(some), rtol=1e-6)
    assert calibration.fitted_on["contigs"] == ["XI"]
    predictions = read_predictions(PROMOTERS / "predictions.parquet", further=True)
    assert set(predictions["contig"]) == {"VII", "XV"}
    rows = CalibrationRows.of(predictions, "test")
    found = calibration_metrics(
        rows.labels, calibration(rows.probabilities), groups=rows.pairs, negative_weight=rows.negative_weight
    )
    told = json.loads((PROMOTERS / METRICS).read_text())["test"]["calibration"]["calibrated"]
    assert found._asdict() == pytest.approx(told, rel=1e-6)
    assert found.ece < 0.03 and found.ece_debiased < 0.03
    result = run("evaluate promoter-threshold", PROMOTERS, "--prior", 0.1, "--fdr", 0.5)
    threshold = float(result.out.splitlines()[-1].split("\t")[2])
    assert 0.02 < threshold < 0.6  # the better the model, the lower its threshold for the same rate
    fasta = tmp_path / "genome.fa"
    fasta.write_text(">c\n" + sequences(1, 1000)[0] + "\n")
    words = ("score-promoters", PROMOTERS, fasta, "--stride", 200, "--device", "cpu")
    raw, held = (run(*words, *more) for more in ((), ("--calibrated", "--prior", 0.1)))
    assert (raw.code, held.code) == (0, 0)
    before, after = (
        [float(line.split("\t")[4]) for line in one.out.splitlines() if not line.startswith("#")]
        for one in (raw, held)
    )
    assert len(before) == len(after) and before != after
    assert np.array_equal(np.argsort(before), np.argsort(after))


def test_the_encoder_predicts_a_held_out_contig_as_its_figures_say(yeast: Path, tmp_path: Path) -> None:
    model = load_pretrained(ENCODER)
    metrics = json.loads((ENCODER / METRICS).read_text())
    config = load_config(CONFIG, ["tokens.genome_passes=1", "genome.exclude=[Mito]"])
    tokenize(config, yeast, ENCODER / "tokenizer.model", tmp_path)
    store = TokenStore.open(tmp_path / "valid", model.tokenizer)
    settings = config.pretraining
    held_out = HeldOut.draw(
        store, model.tokenizer, settings.sequence_tokens, settings.evaluation_sequences, pairs=False
    )
    with torch.inference_mode():
        bits = held_out.bits(model.network.eval(), model.tokenizer, torch.device("cpu")).bits
    assert bits.sum() / held_out.bases.sum() == pytest.approx(metrics["bits_per_base"], abs=2e-3)


def test_the_classifier_tells_promoters_from_what_lies_between(yeast: Path, shared_data: Path) -> None:
    """Of a test contig: the promoters, and as many windows 700 bp downstream of their start sites."""
    model = bigbird_dna.load("yeast-promoters")
    loci = read_promoters(shared_data / "yeast/Sc_EPDnew_002_sacCer3.sga")
    with Reference(yeast) as reference:
        placed = place(loci, reference.contigs, load_assembly("sacCer3"), "EPDnew")
        own = [locus for locus in placed.loci if locus.contig in ("VII", "chrVII")][:150]
        windows, labels = [], []
        for locus in own:
            window = window_around(locus, 300, 100)
            ahead = 700 if locus.strand == "+" else -700
            for label, shift in ((1, 0), (0, ahead)):
                moved = Interval(window.contig, window.start + shift, window.end + shift, window.strand)
                if inside(moved, reference.contigs):
                    windows.append(reference.fetch(moved))
                    labels.append(label)
    assert roc_auc_score(labels, model.predict(windows)) > 0.85
