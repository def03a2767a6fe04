"""Fine-tuning on a genome whose promoters carry a motif, its baselines, and the ensemble of both."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from bigbird_dna.baselines.promoters import (
    kmer_regression,
    position_regression,
    promoter_regression,
)
from bigbird_dna.calibration.maps import FILE, read_calibration
from bigbird_dna.config.paths import baseline_file
from bigbird_dna.config.promoters import ClassifierConfig, PromoterTrainingConfig
from bigbird_dna.config.reading import load_config
from bigbird_dna.data.predictions import (
    COLUMNS,
    HOMOLOGY,
    NETWORK,
    PROMOTER_BASELINES,
    SHIFTS,
    blocks_of,
)
from bigbird_dna.data.promoter_windows import (
    read_windows,
    window_sequences,
)
from bigbird_dna.errors import BigBirdDnaError, ConfigError, ModelError
from bigbird_dna.finetuning.ensembles import add_promoter_members, fit_members
from bigbird_dna.finetuning.promoters import PromoterTask
from bigbird_dna.finetuning.task import Windows
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.metrics.reliability import calibration_metrics
from bigbird_dna.model.directory import load
from bigbird_dna.model.promoter import (
    LoadedPromoterModel,
    promoter_rows,
    row_logits,
    view_cuts,
)
from bigbird_dna.model.settings import PromoterSettings
from bigbird_dna.reporting.training import read_training_log
from bigbird_dna.training.draws import WindowDraws, variant_epochs
from bigbird_dna.training.initialization import Initialization
from tests.cli.command import Run, invoke, refused
from tests.golden.messages import fails, message
from tests.toys import (
    random_dna,
    random_model,
    small_encoder,
    small_tokenizer,
    update_json,
)

RANDOM = "promoters.classifier.initial=random"
TOKENIZER = small_tokenizer()


def sets(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def finetune(
    config: Path, output: Path, *words: object, negative_set: str = "genomic"
) -> None:
    places = ("-o", output, "--checkpoint-dir", output.parent / "checkpoints")
    invoke("finetune-promoter", config, "--negative-set", negative_set, *places, *words)


def metrics_of(model: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((model / "metrics.json").read_text())
    return found


@pytest.fixture(scope="module")
def model(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("promoter")
    steps = (
        "promoters.training.steps=150",
        "promoters.training.optimizer.learning_rate=0.003",
    )
    finetune(
        *(tiny_config, directory / "model"),
        *sets(
            RANDOM,
            *steps,
            "promoters.classifier.views=2",
            "promoters.classifier.dropout=0.0",
        ),
    )
    assert not list((directory / "checkpoints").iterdir())
    return directory / "model"


def test_the_motif_is_learned_and_the_model_calibrated(model: Path) -> None:
    metrics = metrics_of(model)
    assert metrics["test"]["auroc"] > 0.8
    assert load(model).config.dropout == 0.0
    predictions = pd.read_parquet(model / "predictions.parquet")
    assert {*predictions.columns} == {*COLUMNS, HOMOLOGY, NETWORK}
    own = predictions[predictions["split"] == "valid"]
    alone = auroc(own["label"].to_numpy(), own[NETWORK].to_numpy()).value
    assert metrics["ensemble"]["valid_auroc"]["network"] == pytest.approx(alone)
    assert set(predictions["split"]) == {"valid", "test"}
    assert predictions["probability"].between(0, 1).all()
    found = metrics["test"]["calibration"]
    assert found["raw"].keys() == found["calibrated"].keys()
    valid = predictions[predictions["split"] == "valid"]
    calibration = read_calibration(model / FILE, load(model).sha256)
    assert calibration.tracks[0].positives == valid["label"].sum()
    test = predictions[predictions["split"] == "test"]
    values = calibration(test["probability"].to_numpy())
    expected = calibration_metrics(test["label"], values, blocks=blocks_of(test))
    assert found["calibrated"]["ece"] == pytest.approx(expected.ece)
    assert found["calibrated"]["brier"] == pytest.approx(expected.brier)


def test_windows_of_validation_promoters_are_moved(
    tiny_config: Path, model: Path
) -> None:
    """The scores are those of the saved model for the sequences around."""
    metrics, scored = metrics_of(model)["shifts"], load(model)
    assert isinstance(scored, LoadedPromoterModel)
    predictions = pd.read_parquet(model / "predictions.parquet")
    valid = predictions[predictions["split"] == "valid"]
    negatives, promoters = (valid[valid["label"] == label] for label in (0, 1))
    reference = Reference(load_config(tiny_config).paths.reference)
    inside = promoters["end"] + 25 <= promoters["contig"].map(reference.contigs)
    promoters = promoters[inside & (promoters["start"] >= 25)]
    assert metrics["promoters"] == len(promoters)
    for name, column in (("model", "probability"), ("network", NETWORK)):
        found = metrics[name]
        mean = promoters[column].mean()
        assert found["mean_score"] == pytest.approx(mean, abs=1e-6)
        for bp in SHIFTS:
            texts = [
                reference.fetch(
                    Interval(row.contig, row.start + move, row.end + move, row.strand)
                )
                for move in (-bp, bp)
                for row in promoters.itertuples()
            ]
            scores = scored.predict(texts)
            if name == "network":
                scores = expit(scored.network_logits(texts)).mean(1)[:, 0]

            relative = scores.mean() / mean
            assert found[f"relative_score_{bp}_bp"] == pytest.approx(relative, abs=1e-5)
            labels = [1] * len(scores) + [0] * len(negatives)
            area = auroc(labels, np.concatenate([scores, negatives[column]])).value
            assert found[f"auroc_{bp}_bp"] == pytest.approx(area, abs=1e-3)


@given(st.integers(0, 12), st.integers(0, 20))
def test_shifted_bases_stay_within_the_window(jitter: int, most: int) -> None:
    """Only bases that leave the window, or that the jitter trims, are missing."""
    settings = PromoterSettings(
        upstream=40, downstream=20, pooling="cls", jitter=jitter, views=1
    )
    config = PromoterTrainingConfig(
        batch_size=300, crop_jitter_bp=jitter, shift_bp=most
    )
    task, window = task_of_bases(settings, config), 60
    text = "".join(chr(60 + place) for place in range(window))
    labels = np.array([[0.0], [1.0]], np.float32)
    task.train_windows = Windows([text, text], labels)
    task.draws = WindowDraws([np.arange(2)], config)
    batch = task.batch(0, 0, 300)
    firsts, lengths = batch["firsts"].numpy(), batch["lengths"].numpy() - 2
    places = batch["ids"][:, 1].numpy() - 60  # of the first base
    assert (firsts >= 0).all() and (firsts + lengths <= window).all()
    shifts = firsts - places
    assert {*shifts} == {*range(-most, most + 1)}
    crops = np.maximum(places, window - places - lengths)
    assert (crops <= np.maximum(jitter, np.abs(shifts))).all()


def task_of_bases(
    settings: PromoterSettings, config: PromoterTrainingConfig
) -> PromoterTask:
    """A task without data, whose tokens are single letters: their codes."""
    tokenizer: Any = SimpleNamespace(
        **{"is_dna": True, "pad_id": 0, "cls_id": 2, "sep_id": 3},
        split_batch=lambda texts, _phase, _threads: [
            np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in texts
        ],
    )
    none: Any = None
    task = PromoterTask(none, none, none, none, none, "genomic")
    task.settings, task.config = settings, config
    task.start = Initialization(small_encoder(), tokenizer, ClassifierConfig())
    return task


def test_an_epoch_has_every_promoter_once_and_its_negatives_by_turns() -> None:
    """Four promoters with three negatives each: windows told apart by their lengths, in steps of eight."""
    variants = np.concatenate([np.zeros(4, np.int64), np.tile(np.arange(3), 4)])
    sequences, promoter = ["A" * (40 + row) for row in range(16)], np.arange(16) < 4
    settings = PromoterSettings(
        upstream=40, downstream=40, pooling="cls", jitter=0, views=1
    )
    config = PromoterTrainingConfig(batch_size=8, crop_jitter_bp=0)
    objective = task_of_bases(settings, config)
    labels = promoter[:, None].astype(np.float32)
    objective.train_windows = Windows(sequences, labels)
    objective.draws = WindowDraws(variant_epochs(promoter, variants), config)
    seen: list[set[int]] = []
    for step in range(6):
        batch = objective.batch(step, 0, 8)
        rows = (batch["lengths"] - 42).tolist()
        assert sorted(rows)[:4] == [0, 1, 2, 3] and batch["labels"].sum() == 4
        seen.append({row for row in rows if row >= 4})
    assert seen[:3] == seen[3:] and set.union(*seen[:3]) == set(range(4, 16))


@given(st.integers(1, 9), st.integers(0, 40))
def test_views_are_of_one_length_and_reach_from_end_to_end(
    views: int, jitter: int
) -> None:
    cuts = view_cuts(views, jitter)
    assert len(cuts) == views and cuts == sorted(cuts)
    if views == 1:
        assert cuts == [(0, 0)]
    else:
        assert cuts[0] == (0, jitter) and cuts[-1] == (jitter, 0)
        assert {left + right for left, right in cuts} == {jitter}


def test_shuffled_labels_end_at_chance(
    tiny_config: Path, model: Path, tmp_path: Path
) -> None:
    finetune(tiny_config, tmp_path / "control", "--shuffle-labels", *sets(RANDOM))
    control, learned = (
        metrics_of(path)["test"]["auroc"] for path in (tmp_path / "control", model)
    )
    assert abs(control - 0.5) < 0.1 < learned - 0.5


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        (["--negative-set", "easy", *sets(RANDOM)], BigBirdDnaError, "easy"),
        (["--pretrained", "nowhere"], ModelError, "nowhere"),
        (["--reference", "no.fa"], BigBirdDnaError, "no.fa"),
        (["--set", "promoters.training.stepz=3"], ConfigError, "stepz"),
    ],
)
def test_mistakes_are_named(
    tiny_config: Path,
    model: Path,
    tmp_path: Path,
    arguments: list[str],
    error: type[Exception],
    named: str,
) -> None:
    with fails(error, named):
        finetune(
            tiny_config,
            tmp_path / "model",
            *(word.replace("MODEL", str(model)) for word in arguments),
        )
    assert not (tmp_path / "model").exists()


def pretrain(config: Path, home: Path, *settings: str) -> Path:
    places = ("-o", home / "pretrained", "--checkpoint-dir", home / "checkpoints")
    invoke("pretrain", config, *places, *sets(*settings))
    return home / "pretrained"


@pytest.fixture(scope="module")
def pretrained(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("pretrained")
    return pretrain(tiny_config, home, "pretraining.steps=1")


def test_a_pretraining_that_saw_the_held_out_contigs_is_reported(
    tiny_config: Path, pretrained: Path, tmp_path: Path
) -> None:
    shutil.copytree(pretrained, tmp_path / "pretrained")
    provenance = tmp_path / "pretrained/provenance.json"
    recorded = json.loads(provenance.read_text())
    assert recorded["contigs"] == ["one"]
    assert recorded["attention_backends"] in (
        ["native"],
        ["blocked"],
    )  # without a compiler
    assert "stretches" not in recorded  # its contig is whole
    update_json(
        provenance,
        contigs=["one", "three"],
        stretches=["three:1-100", "three:6001-12000"],
    )
    words = ("--pretrained", provenance.parent, *sets("promoters.training.steps=2"))
    finetune(tiny_config, tmp_path / "model", *words)
    found = json.loads((tmp_path / "model/provenance.json").read_text())
    assert found["held_out_contigs_seen_in_pretraining"] == ["three:6001-12000"]


def test_a_pretrained_encoder_is_extended_where_that_is_asked_for(
    tiny_config: Path, pretrained: Path, tmp_path: Path
) -> None:
    words: tuple[object, ...] = ("--pretrained", pretrained)
    words += (*sets("promoters.training.steps=1"),)
    for positions, method in ((160, "false"), (100, "true")):
        extended = f"promoters.classifier.extend_positions={method}"
        keys = sets(
            f"encoder.max_length={positions}",
            extended,
            "pretraining.sequence_tokens=96",
        )
        with fails(ConfigError, positions):
            finetune(tiny_config, tmp_path / "model", *words, *keys)
    keys = sets("encoder.max_length=160", "promoters.classifier.extend_positions=true")
    finetune(tiny_config, tmp_path / "model", *words, *keys)
    model = load(tmp_path / "model")
    table = model.network.state_dict()["encoder.embeddings.position.weight"]
    before = load(pretrained).network.state_dict()["encoder.embeddings.position.weight"]
    assert model.config.max_length == len(table) == 160
    # One step of fine-tuning moves what it used; a window has fewer tokens than the copy's first row.
    torch.testing.assert_close(table[128:], before[:32], atol=2e-3, rtol=0)
    # A rotary one has no table.
    rotary = "encoder.position_encoding=rotary"
    start = pretrain(tiny_config, tmp_path / "home", "pretraining.steps=1", rotary)
    keys = sets("promoters.training.steps=1", "encoder.max_length=256", rotary)
    keys += sets("promoters.classifier.extend_positions=true")
    finetune(tiny_config, tmp_path / "rotary", "--pretrained", start, *keys)
    assert load(tmp_path / "rotary").config.max_length == 256


def test_a_pretrained_encoder_reads_k_mers_as_well(
    tiny_config: Path, pretrained: Path, tmp_path: Path
) -> None:
    """Before training they change nothing; an encoder with other k-mers is another one."""
    keys = sets(
        "promoters.training.steps=1", "promoters.training.optimizer.learning_rate=1e-30"
    )
    words = ("--pretrained", pretrained, *keys, *sets("encoder.kmers=3"))
    finetune(tiny_config, tmp_path / "model", *words)
    model, dna = load(tmp_path / "model"), [random_dna(300, 1)]
    assert model.config.kmers == 3
    np.testing.assert_allclose(model.embed(dna), load(pretrained).embed(dna), atol=1e-6)
    with fails(ConfigError, tmp_path / "model"):
        finetune(
            tiny_config, tmp_path / "other", "--pretrained", tmp_path / "model", *keys
        )


# Baselines


def test_predictions_are_the_regression_s(
    run: Run, tiny_config: Path, model: Path, tmp_path: Path
) -> None:
    words = ["train baseline promoter", tiny_config, "--negative-set", "genomic"]
    assert run(*words, "-o", tmp_path / "all").code == 0
    files = {path.name: path for path in (tmp_path / "all").glob("*.parquet")}
    assert files.keys() == {*map(baseline_file, PROMOTER_BASELINES)}
    assert run(*words, "--baseline", "k-mer", "-o", tmp_path / "one").code == 0
    (written,) = (tmp_path / "one").glob("*.parquet")
    assert files[written.name].read_bytes() == written.read_bytes()
    columns = [column for column in COLUMNS if column != "probability"]
    of_model = pd.read_parquet(model / "predictions.parquet")
    config = load_config(tiny_config)
    data = read_windows(config.paths.windows, "genomic")
    sequences = np.array(
        window_sequences(Reference(config.paths.reference), data.rows, config.seed)
    )
    chosen = config.promoters.evaluation
    models = {
        "k-mer": kmer_regression(chosen.baseline_kmer, chosen.seed),
        "position": position_regression(chosen.seed),
        "composition": promoter_regression("composition", 4, chosen.seed),
    }
    train = (data.rows["split"] == "train").to_numpy()
    for baseline, regression in models.items():
        found = pd.read_parquet(files[baseline_file(baseline)])
        pd.testing.assert_frame_equal(found[columns], of_model[columns])
        fitted = regression.fit(sequences[train].tolist(), data.labels[train])
        expected = fitted.predict(sequences[~train].tolist())
        assert found["probability"].to_numpy().tobytes() == expected.tobytes(), baseline


def test_other_baselines_are_refused(
    run: Run, tiny_config: Path, tmp_path: Path
) -> None:
    words = [
        "train baseline promoter",
        tiny_config,
        "--negative-set",
        "genomic",
        "--baseline",
        "gc",
    ]
    message(refused(run(*words), 2), "gc")
    # A configuration of other windows would give scores of a scan another start site.
    scan = (
        "--scan",
        load_config(tiny_config).paths.reference,
        *sets("promoters.windows.upstream=9000"),
    )
    words = ["train baseline promoter", tiny_config, "--negative-set", "genomic", *scan]
    message(
        refused(run(*words, "-o", tmp_path / "scans"), 2),
        "promoters.windows.upstream 9,000",
    )
    assert not (tmp_path / "scans").exists()


# The ensemble

CONFIG = small_encoder(TOKENIZER.vocabulary)
BOTH = PromoterSettings(
    upstream=40,
    downstream=20,
    pooling="mean",
    jitter=0,
    views=1,
    base_positions=True,
    ensemble=True,
    ensemble_kmers=3,
)


def windows(count: int, seed: int) -> Windows:
    """Every second one, a promoter, tends to have an A 10 bp before the TSS."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(count) % 2).astype(np.uint8)
    texts = [random_dna(60, 1000 * seed + number) for number in range(count)]
    marked = [
        text[:30] + "A" + text[31:] if label and rng.random() < 0.8 else text
        for text, label in zip(texts, labels, strict=True)
    ]
    return Windows(marked, labels[:, None].astype(np.float32))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"base_positions": False},
        {"ensemble_kmers": 0},
        {"ensemble": False, "ensemble_kmers": 6},
    ],
    ids=str,
)
@pytest.mark.parametrize("has_valid", [True, False])
def test_log_odds_add_up(changes: dict[str, Any], has_valid: bool) -> None:
    own = BOTH.model_copy(update=changes)
    model = random_model(TOKENIZER, CONFIG, own, scale=2.0)
    assert isinstance(model, LoadedPromoterModel)
    assert (model.network.base_positions is not None) == own.base_positions
    learned, valid, test = windows(200, 1), windows(60, 2), windows(80, 3)

    def predict(texts: list[str]) -> np.ndarray:
        return model.window_probabilities(texts, device="cpu").astype(np.float64)

    alone = logit(predict(test.sequences))
    ensemble = model.network.ensemble
    assert ensemble is not None
    of_valid = predict(valid.sequences)
    members, _ = add_promoter_members(
        ensemble, learned, valid if has_valid else None, of_valid, 1
    )
    regressions = {"position": position_regression(1)} if own.ensemble else {}
    regressions |= (
        {"kmers": kmer_regression(own.ensemble_kmers, 1)} if own.ensemble_kmers else {}
    )
    assert [*members.weights] == ["network", *regressions]
    assert (len({*members.weights.values()}) == 1) == (not has_valid)
    expected = members.weights["network"] * alone + members.intercept
    for name, regression in regressions.items():
        fitted = regression.fit(learned.sequences, learned.labels[:, 0])
        expected += members.weights[name] * fitted.logits(test.sequences)
    found = logit(predict(test.sequences))
    np.testing.assert_allclose(found, expected, atol=1e-3)
    logits = model.network_logits(test.sequences, device="cpu")[..., 0]
    if own.views == 1:
        np.testing.assert_allclose(logits[:, 0], alone, atol=1e-5)
    labels = test.labels[:, 0]
    assert not own.ensemble or auroc(labels, found).value > auroc(labels, alone).value


def test_regressions_read_the_whole_window_in_every_view() -> None:
    """Views crop the window of the network alone."""
    one = random_model(TOKENIZER, CONFIG, BOTH, scale=2.0)
    assert isinstance(one, LoadedPromoterModel) and one.network.ensemble is not None
    learned, test = windows(200, 1), windows(20, 3).sequences
    add_promoter_members(one.network.ensemble, learned, None, np.empty(0), 1)
    several = replace(one, settings=BOTH.model_copy(update={"views": 3, "jitter": 8}))
    alone = one.network_logits(test, device="cpu")[:, 0, 0].astype(np.float64)
    rows = [
        promoter_rows(TOKENIZER, test, [sides] * 20, BOTH, 128)
        for sides in view_cuts(3, 8)
    ]
    cpu = torch.device("cpu")
    views = [
        row_logits(one.network, row, 0, 8, cpu)[:, 0].astype(np.float64) for row in rows
    ]
    added = (
        logit(one.window_probabilities(test, device="cpu").astype(np.float64))
        - alone / 3
    )
    expected = np.mean([expit(view / 3 + added) for view in views], axis=0)
    found = several.window_probabilities(test, device="cpu")
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.ptp(views, axis=0).max() > 0.01
    known = several.network_logits(test, device="cpu")
    assert (
        several.window_probabilities(test, logits=known, device="cpu").tobytes()
        == found.tobytes()
    )


@settings(deadline=None)
@given(st.integers(0, 1000))
def test_weights_are_not_negative_and_useful_members_are_used(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = np.arange(400)[:, None] % 2
    good, noise = 2 * labels - 1 + rng.normal(size=(400, 1)), rng.normal(size=(400, 1))
    found = fit_members({"a": good, "b": noise}, labels)
    weights = found.weights
    total = weights["a"] * good + weights["b"] * noise
    assert weights["a"] > 1 and 0 <= weights["b"] < 0.5
    areas = {"a": good, "b": noise, "ensemble": total}
    expected = {
        name: auroc(labels[:, 0], score[:, 0]).value for name, score in areas.items()
    }
    measured = found.measured({"a": good, "b": noise}, total, labels, "binary")
    assert measured.metrics["valid_auroc"] == pytest.approx(expected)
    swapped = fit_members({"a": noise, "b": good}, labels).weights
    assert swapped["b"] == pytest.approx(weights["a"], rel=1e-3)
    assert swapped["a"] == pytest.approx(weights["b"], abs=1e-3)
    assert fit_members({"a": good, "b": -good}, labels).weights["b"] == 0
    useless = fit_members({"a": -good, "b": -good - noise}, labels)
    assert useless.weights == {"a": 0.5, "b": 0.5} and useless.intercept == 0
    # Few labels leave the weights at the mean of the members.
    few = fit_members({"a": good[:4] / 30, "b": noise[:4] / 30}, labels[:4]).weights
    assert [*few.values()] == pytest.approx([0.5, 0.5], abs=0.2)
    assert fit_members({"a": good[:1]}, labels[:1]).weights == {"a": 1.0}
    # Positives with eight times the weight have higher log-odds.
    plain, weighted = (
        fit_members({"a": good}, labels, weight).intercept for weight in (1.0, 8.0)
    )
    assert weighted == pytest.approx(plain + np.log(8), abs=0.5)


def test_a_member_that_was_not_fitted_adds_nothing() -> None:
    """A training that is not finished has none yet; the network learns without it."""
    torch.manual_seed(0)
    model = random_model(TOKENIZER, CONFIG, BOTH, scale=2.0)
    assert isinstance(model, LoadedPromoterModel) and model.network.ensemble is not None
    position = model.network.ensemble.position
    assert position is not None and not position.weight.any()
    assert "ensemble.position.weight" in model.network.state_dict()
    assert not any(
        name.startswith("ensemble") for name, _ in model.network.named_parameters()
    )


def without(windows: Path, home: Path, split: str, negative_set: str | None) -> Path:
    """A copy of a data set without the windows of a split, or those of one set."""
    shutil.copytree(windows, home)
    rows = pd.read_parquet(home / "windows.parquet")
    left = (rows["split"] != split) | (
        (rows["negative_set"] != negative_set) & (negative_set is not None)
    )
    rows[left].to_parquet(home / "windows.parquet", index=False)
    packed = np.packbits(
        (rows[left]["negative_set"] == "positive").to_numpy()[:, None], axis=1
    )
    np.savez_compressed(
        home / "labels.npz", packed=packed, tracks=np.array(["promoter"])
    )
    return home


def test_a_validation_split_of_one_class_has_no_auroc(
    tiny_config: Path, tmp_path: Path, run: Run
) -> None:
    """It is neither printed nor stored as a number, and chooses no weights."""
    windows = without(
        load_config(tiny_config).paths.windows, tmp_path / "windows", "valid", "genomic"
    )
    best = tmp_path / "best"
    found = run(
        "finetune-promoter",
        tiny_config,
        "--negative-set",
        "genomic",
        "--windows",
        windows,
        "-o",
        best,
        *sets(RANDOM),
    )
    assert found.code == 0
    shown = found.err
    assert "split 'valid' has no genomic negatives: its AUROC is not defined" in shown
    assert "auroc not defined" in shown and "auroc 0.5" not in shown
    metrics = metrics_of(best)
    assert "kept_step" not in metrics["training"]
    assert metrics["valid"]["auroc"] is None and metrics["test"]["auroc"] > 0
    weights = metrics["ensemble"]["weights"]
    assert set(weights.values()) == {1 / len(weights)}
    records = [
        json.loads(line) for line in (best / "training.jsonl").read_text().splitlines()
    ]
    evaluations = [record["evaluation"] for record in records if "evaluation" in record]
    assert evaluations and all(
        one["auroc"] is None and one["loss"] > 0 for one in evaluations
    )
    assert "NaN" not in (best / "training.jsonl").read_text()
    log = read_training_log(best / "training.jsonl")
    assert log["evaluation.auroc"].isna().all()
    assert log["evaluation.loss"].count() == len(evaluations)


@pytest.mark.parametrize(
    ("split", "negative_set", "words"),
    [
        ("train", "genomic", "no negative is in split 'train'"),
        ("valid", None, "no window is in split 'valid'"),
    ],
)
def test_windows_that_cannot_be_learned_are_refused_at_once(
    tiny_config: Path,
    tmp_path: Path,
    run: Run,
    split: str,
    negative_set: str | None,
    words: str,
) -> None:
    windows = without(
        load_config(tiny_config).paths.windows,
        tmp_path / "windows",
        split,
        negative_set,
    )
    for command in ("finetune-promoter", "train baseline promoter"):
        if split == "valid" and command != "finetune-promoter":
            continue
        arguments = (
            tiny_config,
            "--negative-set",
            "genomic",
            "--windows",
            windows,
            "-o",
            tmp_path / "model",
        )
        found = run(
            *command.split(),
            *arguments,
            *(sets(RANDOM) if command == "finetune-promoter" else ()),
        )
        refused(found, 1, words)
        assert not (tmp_path / "model").exists()
