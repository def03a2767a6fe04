"""Fine-tuning on a genome whose promoters carry a motif: it is learnt, and the control learns nothing."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.calibration.stored import FILE, read_calibration
from bigbird_dna.config import PromoterTrainingConfig, load_config
from bigbird_dna.data.predictions import COLUMNS, EXTRA_NEGATIVES
from bigbird_dna.data.promoter_windows import prepare_windows, read_windows, window_sequences
from bigbird_dna.errors import BigBirdDnaError, ConfigError, ModelError, UsageError
from bigbird_dna.finetuning.ensemble import LabelledWindows
from bigbird_dna.finetuning.promoters import PromoterObjective
from bigbird_dna.genome.reference import Reference
from bigbird_dna.metrics.reliability import calibration_metrics
from bigbird_dna.model.directory import load, load_promoter_model
from bigbird_dna.model.promoter import view_cuts
from bigbird_dna.model.settings import PromoterSettings
from bigbird_dna.training.distributed import World
from tests.cli.command import invoke
from tests.golden.messages import fails

ALONE = World(0, 1, torch.device("cpu"))
SCRATCH = ["--set", "promoters.model.initial=random"]


@pytest.fixture(scope="module")
def model(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("promoter")
    settings = [
        "promoters.training.steps=150",
        "promoters.training.optimizer.learning_rate=0.003",
        "promoters.model.views=2",
        "promoters.model.dropout=0.0",
    ]
    invoke(
        *("finetune-promoter", tiny_config, "--negative-set", "genomic", *SCRATCH),
        *("-o", directory / "model", "--checkpoint-dir", directory / "checkpoints"),
        *(word for setting in settings for word in ("--set", setting)),
    )
    assert not list((directory / "checkpoints").iterdir())
    return directory / "model"


def test_the_motif_is_learnt(model: Path) -> None:
    metrics = json.loads((model / "metrics.json").read_text())
    assert metrics["test"]["auroc"] > 0.8
    assert load(model).config.dropout == 0.0
    predictions = pd.read_parquet(model / "predictions.parquet")
    assert tuple(predictions.columns) == COLUMNS
    assert set(predictions["split"]) == {"valid", "test"}
    assert predictions["probability"].between(0, 1).all()


def test_the_model_is_calibrated_on_its_validation_windows(model: Path) -> None:
    metrics = json.loads((model / "metrics.json").read_text())
    found = metrics["test"]["calibration"]
    assert found["raw"].keys() == found["calibrated"].keys()
    predictions = pd.read_parquet(model / "predictions.parquet")
    valid = predictions[predictions["split"] == "valid"]
    calibration = read_calibration(model / FILE, load(model).sha256)
    assert calibration.tracks[0].positives == valid["label"].sum()
    test = predictions[predictions["split"] == "test"]
    values = calibration(test["probability"].to_numpy())
    expected = calibration_metrics(test["label"], values, groups=test["pair"])
    assert found["calibrated"]["ece"] == pytest.approx(expected.ece)
    assert found["calibrated"]["brier"] == pytest.approx(expected.brier)


def test_further_negatives_are_predicted_for_the_calibration_alone(tiny_config: Path, tmp_path: Path) -> None:
    config = load_config(tiny_config, ["promoters.calibration.negatives=2"])
    prepare_windows(config, config.paths.reference, config.paths.promoters, tmp_path / "windows")
    for number, name in ((2, "more"), (0, "none")):
        invoke(
            *("finetune-promoter", tiny_config, "--negative-set", "permuted", *SCRATCH),
            *("-o", tmp_path / name, "--checkpoint-dir", tmp_path / "checkpoints"),
            *("--windows", tmp_path / "windows", "--set", "promoters.training.steps=2"),
            *("--set", f"promoters.calibration.negatives={number}"),
        )
    more, none = (pd.read_parquet(tmp_path / name / "predictions.parquet") for name in ("more", "none"))
    beside = more["split"].isin(EXTRA_NEGATIVES.values())
    pd.testing.assert_frame_equal(more[~beside].reset_index(drop=True), none)
    assert beside.sum() == 2 * (none["label"] == 0).sum() and not more["label"][beside].any()
    metrics, others = (
        json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("more", "none")
    )
    found, other = (values["test"].pop("calibration") for values in (metrics, others))
    assert metrics["test"] == others["test"] and metrics["valid"] == others["valid"]
    assert found["raw"]["share_positive"] == pytest.approx(other["raw"]["share_positive"])
    assert found["raw"]["brier"] != other["raw"]["brier"]
    fitted = read_calibration(tmp_path / "more" / FILE).fitted_on
    assert fitted["further_negatives"] == (more["split"] == EXTRA_NEGATIVES["valid"]).sum()


def test_published_predictions_are_those_of_the_published_model(model: Path, tiny_config: Path) -> None:
    results = Path(load_config(tiny_config).results)
    predictions = pd.read_parquet(model / "predictions.parquet")
    data = read_windows(results / "promoters", "genomic")
    held_out = data.rows["split"] != "train"
    sequences = window_sequences(
        Reference(results / "genome/reference.fa.gz"), data.rows[held_out], load_config(tiny_config).seed
    )
    again = load_promoter_model(model).predict(sequences, batch_size=7, device="cpu")
    np.testing.assert_allclose(again, predictions["probability"], atol=1e-5)


def test_a_probability_depends_neither_on_batch_size_nor_order_nor_company(model: Path) -> None:
    rng = np.random.default_rng(3)
    sequences = ["".join(rng.choice(list("ACGTN"), n, p=[0.2, 0.25, 0.25, 0.2, 0.1])) for n in (100,) * 20]
    loaded = load_promoter_model(model)
    torch.manual_seed(0)
    alone = np.array([loaded.predict([s], device="cpu")[0] for s in sequences])
    order = rng.permutation(20)
    for batch_size in (1, 3, 20):
        shuffled = loaded.predict([sequences[i] for i in order], batch_size=batch_size, device="cpu")
        np.testing.assert_allclose(shuffled, alone[order], atol=1e-5)


def test_an_epoch_has_every_promoter_once_and_its_negatives_by_turns() -> None:
    """Four promoters with three negatives each, told apart by their lengths."""
    sequences = ["A" * (40 + row) for row in range(16)]
    promoter = np.arange(16) < 4
    variants = np.concatenate([np.zeros(4, np.int64), np.tile(np.arange(3), 4)])
    windows = LabelledWindows(sequences, promoter.astype(np.uint8), promoter, variants)
    config = _config(jitter=0)
    tokenizer = StubTokenizer()
    objective = PromoterObjective(tokenizer, windows, windows, *config, 128, ALONE)  # type: ignore[arg-type]
    seen = []
    for step in range(6):
        batch = objective.batch(step, 0, 8)
        rows = (batch["lengths"] - 42).tolist()
        assert sorted(rows)[:4] == [0, 1, 2, 3] and batch["labels"].sum() == 4
        seen.append({row for row in rows if row >= 4})
    assert seen[:3] == seen[3:] and set.union(*seen[:3]) == set(range(4, 16))


def test_a_share_of_a_batch_is_the_same_for_any_number_of_shares() -> None:
    sequences = ["A" * (40 + row) for row in range(16)]
    promoter = np.arange(16) < 8
    windows = LabelledWindows(sequences, promoter.astype(np.uint8), promoter, np.zeros(16, np.int64))
    config = _config(jitter=9)
    objective = PromoterObjective(StubTokenizer(), windows, windows, *config, 128, ALONE)  # type: ignore[arg-type]
    whole = objective.batch(3, 0, 8)["lengths"]
    assert len(set(whole.tolist())) > 4
    for share in (1, 2, 4):
        parts = [objective.batch(3, first, share)["lengths"] for first in range(0, 8, share)]
        assert torch.equal(torch.cat(parts), whole)


def _config(jitter: int) -> tuple[PromoterTrainingConfig, PromoterSettings]:
    """Steps of eight windows of 80 bp."""
    settings = PromoterSettings(upstream=40, downstream=40, pooling="cls", jitter=jitter, views=1)
    return PromoterTrainingConfig(batch_size=8, jitter=jitter), settings


class StubTokenizer:
    """One token a base."""

    is_dna = True
    pad_id, cls_id, sep_id = 0, 2, 3

    def encode_batch(self, sequences: list[str], threads: int = 1) -> list[np.ndarray]:
        return [np.full(len(sequence), 5, np.int32) for sequence in sequences]


@given(st.integers(1, 9), st.integers(0, 40))
def test_views_are_of_one_length_and_reach_from_end_to_end(views: int, jitter: int) -> None:
    cuts = view_cuts(views, jitter)
    assert len(cuts) == views and cuts == sorted(cuts)
    if views == 1:
        assert cuts == [(0, 0)]
    else:
        assert cuts[0] == (0, jitter) and cuts[-1] == (jitter, 0)
        assert {left + right for left, right in cuts} == {jitter}


def test_shuffled_labels_and_kmers_are_told_apart(tiny_config: Path, tmp_path: Path) -> None:
    invoke(
        *("finetune-promoter", tiny_config, "--negative-set", "genomic", "--shuffle-labels", *SCRATCH),
        *("-o", tmp_path / "control", "--checkpoint-dir", tmp_path / "checkpoints"),
    )
    control = json.loads((tmp_path / "control/metrics.json").read_text())["test"]
    assert control["auroc_low"] <= 0.5 <= control["auroc_high"]
    invoke(
        "train baseline-promoter", tiny_config, "--negative-set", "genomic", "-o", tmp_path / "kmer.parquet"
    )
    kmer = pd.read_parquet(tmp_path / "kmer.parquet")
    mine = pd.read_parquet(tmp_path / "control/predictions.parquet")
    places = [column for column in COLUMNS if column != "probability"]
    pd.testing.assert_frame_equal(kmer[places], mine[places])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--negative-set", "easy"], BigBirdDnaError, "no negative set 'easy'"),
        (["--negative-set", "genomic", "--pretrained", "nowhere"], ModelError, "nowhere: no such model"),
        (["--negative-set", "genomic", "--reference", "no.fa"], BigBirdDnaError, "no.fa"),
        (["--negative-set", "genomic", "--device", "tpu"], BigBirdDnaError, "choose auto, cpu or cuda"),
        (["--negative-set", "genomic", "--set", "promoters.training.stepz=3"], ConfigError, "stepz"),
    ],
)
def test_mistakes_are_named(
    tiny_config: Path, tmp_path: Path, arguments: list[str], error: type[Exception], message: str
) -> None:
    with fails(error):
        invoke("finetune-promoter", tiny_config, *arguments, "-o", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_pretrained_encoder_of_other_shapes_is_refused(
    tiny_config: Path, model: Path, tmp_path: Path
) -> None:
    with fails(ModelError):
        invoke(
            *("finetune-promoter", tiny_config, "--negative-set", "genomic"),
            *("--pretrained", model, "-o", tmp_path / "model"),
        )


def test_a_pretraining_that_saw_the_held_out_contigs_is_reported(tiny_config: Path, tmp_path: Path) -> None:
    places = ("--checkpoint-dir", tmp_path / "checkpoints")
    short = ("--set", "pretraining.steps=2", "--set", "promoters.training.steps=2")
    invoke("pretrain", tiny_config, *short, "-o", tmp_path / "pretrained", *places)
    provenance = tmp_path / "pretrained/provenance.json"
    recorded = json.loads(provenance.read_text())
    assert recorded["contigs"] == ["one"]
    assert "stretches" not in recorded  # its contig is whole
    for contigs, stretches, leaked in (
        (["one"], None, []),
        (["one", "three"], None, ["three"]),  # as a model of an earlier version says it
        (["one", "three"], ["three:1-100", "three:6001-12000"], ["three:6001-12000"]),
    ):
        said = {"contigs": contigs} | ({"stretches": stretches} if stretches else {})
        provenance.write_text(json.dumps({**recorded, **said}))
        invoke(
            *("finetune-promoter", tiny_config, "--negative-set", "genomic", *short, *places),
            *("--pretrained", tmp_path / "pretrained", "-o", tmp_path / "model"),
        )
        found = json.loads((tmp_path / "model/provenance.json").read_text())
        assert found["held_out_contigs_seen_in_pretraining"] == leaked


@pytest.mark.parametrize("command", [("pretrain",), ("finetune-promoter", "--negative-set", "genomic")])
def test_an_output_that_cannot_be_written_is_refused_before_the_training(
    tiny_config: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "model").write_text("a file")
    places = ("-o", tmp_path / "model", "--checkpoint-dir", tmp_path / "checkpoints")
    with fails(UsageError):
        invoke(command[0], tiny_config, *command[1:], *SCRATCH, *places)
    assert not (tmp_path / "checkpoints").exists()


def test_a_pretrained_encoder_is_extended_where_that_is_asked_for(tiny_config: Path, tmp_path: Path) -> None:
    places = ("--checkpoint-dir", tmp_path / "checkpoints")
    invoke(
        *("pretrain", tiny_config, "--set", "pretraining.steps=1", *places), *("-o", tmp_path / "pretrained")
    )
    command = (
        *("finetune-promoter", tiny_config, "--negative-set", "genomic", *places),
        *("--pretrained", tmp_path / "pretrained", "-o", tmp_path / "model"),
        *("--set", "promoters.training.steps=1"),
    )
    for positions, method in ((160, "null"), (100, "tile")):
        with fails(ConfigError, positions):
            invoke(
                *(*command, "--set", f"encoder.max_length={positions}"),
                *("--set", f"promoters.model.extend_positions={method}"),
                *("--set", "pretraining.sequence_tokens=96"),
            )
    invoke(*command, "--set", "encoder.max_length=160", "--set", "promoters.model.extend_positions=tile")
    model = load(tmp_path / "model")
    table = model.network.state_dict()["encoder.embeddings.position.weight"]
    before = load(tmp_path / "pretrained").network.state_dict()["encoder.embeddings.position.weight"]
    assert model.config.positions == len(table) == 160
    # One step of fine-tuning moves what it used; a window has fewer tokens than the copy's first row.
    torch.testing.assert_close(table[128:], before[:32], atol=2e-3, rtol=0)


def test_a_rotary_encoder_is_extended_with_its_scale(tiny_config: Path, tmp_path: Path) -> None:
    settings = ("--checkpoint-dir", tmp_path / "checkpoints", "--set", "encoder.position_encoding=rotary")
    invoke(
        *("pretrain", tiny_config, "--set", "pretraining.steps=1", *settings),
        *("-o", tmp_path / "pretrained"),
    )
    invoke(
        *("finetune-promoter", tiny_config, "--negative-set", "genomic", *settings),
        *("--pretrained", tmp_path / "pretrained", "-o", tmp_path / "model"),
        *("--set", "promoters.training.steps=1", "--set", "encoder.max_length=256"),
        *("--set", "promoters.model.extend_positions=interpolate"),
    )
    assert load(tmp_path / "model").config.rotary_scale == 2.0
