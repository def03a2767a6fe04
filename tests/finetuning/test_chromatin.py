"""Chromatin models from training to predictions, on a genome whose tracks are two motifs."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from bigbird_dna.calibration.maps import FILE, read_calibration
from bigbird_dna.config.chromatin import ChromatinConfig
from bigbird_dna.config.reading import parse_config
from bigbird_dna.config.run import Config
from bigbird_dna.errors import DataError, ModelError, UsageError
from bigbird_dna.finetuning.calibrate import calibrate_chromatin
from bigbird_dna.finetuning.chromatin import (
    ChromatinTask,
    neighboring_bins,
)
from bigbird_dna.finetuning.evaluation import (
    baseline_log_odds,
    evaluate_baseline,
    evaluate_models,
    fit_baseline,
    held_out_rows,
    predict_bins,
)
from bigbird_dna.genome.chromatin.dataset import ChromatinData, make_bins
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, reverse_complement
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.metrics.reliability import calibration_metrics
from bigbird_dna.model.chromatin import share_windows
from bigbird_dna.model.directory import (
    build_network,
    combine_models,
    load_chromatin_model,
    regressions_alone,
)
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack
from bigbird_dna.tokens import dna as tokenizers
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.training.distributed import world
from bigbird_dna.training.initialization import Initialization
from bigbird_dna.training.loop import Batch
from bigbird_dna.training.task import train
from tests.golden.messages import fails
from tests.plain_batches import PlainBatches
from tests.toys import MOTIFS, label_bins, small_encoder, write_motif_genome

SETTINGS: dict[str, Any] = {
    "genome": {"valid": ["b"], "test": ["c"]},
    "encoder": {
        "layers": 1,
        "hidden": 32,
        "heads": 2,
        "max_length": 160,
        "block_size": 8,
        "dropout": 0.0,
    },
    "chromatin": {
        "data": {
            "bin": 40,
            "window": 200,
            "shift_bp": 3,
            "negative_fraction": 1.0,
            "min_positives_train": 5,
        },
        "model": {"pooling": "bin", "initial": "random"},
        "training": {
            "bins_per_window": 3,
            "steps": 120,
            "batch_size": 16,
            "optimizer": {"learning_rate": 3e-3, "warmup_steps": 10},
            "evaluate_every": 60,
            "checkpoint_minutes": 10,
            "precision": "float32",
        },
        "evaluation": {"baseline_kmer": 4},
    },
}


class Made(NamedTuple):
    """A reference, its tokenizer and data set, and where their files are."""

    home: Path
    reference: Reference
    tokenizer: DnaTokenizer
    data: ChromatinData


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    home = tmp_path_factory.mktemp("chromatin")
    write_motif_genome(
        home, {"a": 24_000, "b": 6_000, "c": 8_000}, spacing=170, both_strands=True
    )
    reference = Reference(home / "reference.fa.gz")
    pieces = (
        reference.fetch(Interval("a", start, start + 500))
        for start in range(0, 20_000, 500)
    )
    tokenizer = DnaTokenizer.train(pieces, home / "tokenizer.model", 24, 4)
    data = label_bins(
        home, {name: home / f"peaks/{name}.bed" for name in MOTIFS}, "b", "c"
    )
    return Made(home, reference, tokenizer, data)


def settings(**changed: dict[str, Any]) -> Config:
    """The configuration with other keys in some sections of `chromatin`."""
    sections = {
        name: {**keys, **changed.get(name, {})}
        for name, keys in SETTINGS["chromatin"].items()
    }
    sections = {**changed, **sections}
    return parse_config({**SETTINGS, "chromatin": sections})


def task_of(made: Made, config: Config, window: int, member: int) -> ChromatinTask:
    return ChromatinTask(
        config,
        window=window,
        member=member,
        data=made.home / "data",
        reference=made.reference,
        tokenizer_path=made.home / "tokenizer.model",
        pretrained=None,
    )


def predicted(
    made: Made, models: list[Path], rows: np.ndarray, **keys: Any
) -> np.ndarray:
    loaded = [load_chromatin_model(path) for path in models]
    return predict_bins(loaded, made.data, made.reference, rows, **keys)


def lowest(labels: np.ndarray, values: np.ndarray) -> float:
    """The lower AUROC of the two tracks."""
    return min(auroc(labels[:, track], values[:, track]).value for track in range(2))


def train_model(
    made: Made,
    output: Path,
    config: Config,
    *,
    window: int = 200,
    member: int = 0,
    kmers: Path | None = None,
):
    task = task_of(made, config, window, member)
    task.kmers = kmers
    with world("cpu") as here:
        return train(task, output, output.parent / "checkpoints", here)


@pytest.fixture(scope="module")
def model_dir(made: Made) -> Path:
    train_model(made, made.home / "model", settings())
    return made.home / "model"


def test_training_finds_the_motifs(made: Made, model_dir: Path) -> None:
    rows = held_out_rows(made.data, settings().chromatin.evaluation)
    assert set(made.data.bins["contig"].iloc[rows].astype(str)) == {"c"}
    values = predicted(made, [model_dir], rows)
    labels = made.data.labels.rows(rows)
    # Neighbors that share windows are predicted as well.
    shared = predicted(made, [model_dir], rows, center_fraction=0.6)
    assert lowest(labels, values) > 0.9 and lowest(labels, shared) > 0.9
    assert np.abs(shared - values).max() > 1e-3
    third = (
        made.data.bins["start"].to_numpy()[rows] // 40
    ) % 3 == 1  # those in the middle as before
    np.testing.assert_allclose(shared[third], values[third], atol=1e-5)
    # The other motif's bins are no substitute: predictions are of the right track.
    assert auroc(labels[:, 0], values[:, 1]).value < 0.7
    parts = (made.data.rows(split) for split in ("train", "valid"))
    fitted = fit_baseline(made.data, made.reference, 4, 8, *parts)
    for baseline in baseline_log_odds(fitted, made.data, made.reference, rows):
        assert lowest(labels, baseline) > 0.7


def test_the_baseline_s_files(made: Made, tmp_path: Path) -> None:
    files = {"data": made.home / "data", "reference": made.home / "reference.fa.gz"}
    config = settings().chromatin.evaluation
    dyads = tmp_path / "dyads.npy"
    evaluate_baseline(config, **files, output=tmp_path / "kmers.npy", dyads=dyads)
    labels = made.data.labels.rows(held_out_rows(made.data, config))
    for path in (tmp_path / "kmers.npy", dyads):
        assert lowest(labels, np.load(path)) > 0.7


@pytest.fixture(scope="module")
def alone_dir(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("alone") / "model"
    train_model(made, path, settings(model={"ensemble": False}))
    return path


@pytest.mark.slow
def test_the_network_of_an_ensemble_predicts_as_if_trained_alone(
    made: Made, model_dir: Path, alone_dir: Path, tmp_path: Path
) -> None:
    files = {"data": made.home / "data", "reference": made.home / "reference.fa.gz"}
    config, values = settings().chromatin.evaluation, []
    network = tmp_path / "network.npy"
    for model, further in (
        (model_dir, {"network": network}),
        (model_dir, {}),
        (alone_dir, {}),
    ):
        evaluate_models(
            [model], config, output=tmp_path / "found.npy", **further, **files
        )
        values.append(np.load(tmp_path / "found.npy"))
    both, again, own = values
    assert np.array_equal(np.load(network), own) and np.array_equal(both, again)
    assert np.abs(both - own).max() > 0.01
    evaluate_models(
        [alone_dir], config, output=tmp_path / "found.npy", network=network, **files
    )
    assert np.array_equal(np.load(network), own)


def test_the_regressions_of_an_ensemble_are_the_baseline(
    made: Made, model_dir: Path, alone_dir: Path, tmp_path: Path
) -> None:
    """They predict as if they had never been in the ensemble, but from bins that begin and end with tokens."""
    config = settings().chromatin.evaluation
    files = {"data": made.home / "data", "reference": made.home / "reference.fa.gz"}
    dyads = tmp_path / "dyads.npy"
    evaluate_baseline(config, output=tmp_path / "kmers.npy", dyads=dyads, **files)
    regressions_alone(model_dir, tmp_path / "alone")
    rows = held_out_rows(made.data, config)
    found, expected = predicted(made, [tmp_path / "alone"], rows), np.load(dyads)
    for track in range(found.shape[1]):
        assert np.corrcoef(found[:, track], expected[:, track])[0, 1] > 0.95
    assert np.abs(found - expected).mean() < 0.02
    with fails(ModelError, alone_dir):
        regressions_alone(alone_dir, tmp_path / "none")


def test_calibration_corrects_a_weighted_training(
    made: Made, alone_dir: Path, tmp_path: Path
) -> None:
    config, model_dir = settings(model={"ensemble": False}), alone_dir
    files = {"data": made.home / "data", "reference": made.home / "reference.fa.gz"}
    found = calibrate_chromatin(
        config.chromatin, model_dir, tmp_path / "calibrated", **files
    )
    assert found.fitted_on["contigs"] == ["b"]
    assert [one.track for one in found.tracks] == ["one", "two"] and not any(
        one.shared for one in found.tracks
    )
    assert (
        read_calibration(
            tmp_path / "calibrated" / FILE, load_chromatin_model(model_dir).sha256
        )
        == found
    )
    rows = made.data.rows("test")
    raw = predicted(made, [model_dir], rows)
    labels, both = made.data.labels.rows(rows), (raw, found(raw))
    for track in range(2):
        before, after = (
            calibration_metrics(labels[:, track], values[:, track]) for values in both
        )
        # Positives weigh eight times as much in training: it says them too often.
        assert before.mean_probability > 1.5 * before.share_positive
        assert after.mean_probability == pytest.approx(after.share_positive, rel=0.35)
        assert after.ece < 0.5 * before.ece and after.brier < before.brier
    few = settings(calibration={"bins": 12})
    with fails(DataError):
        calibrate_chromatin(few.chromatin, model_dir, tmp_path / "few", **files)
    assert not (tmp_path / "few").exists()


def test_validation_bins_share_windows_as_test_bins_do(
    made: Made, alone_dir: Path
) -> None:
    config, model = (
        settings(evaluation={"center_fraction": 0.6}),
        load_chromatin_model(alone_dir),
    )
    with world("cpu") as here:
        task = task_of(made, config, 200, 0)
        found = task.evaluate(model.network, here)
    rows = task.watched
    places = (
        made.data.bins["contig"].astype(str)[rows].tolist(),
        made.data.bins["start"].to_numpy()[rows],
    )
    shared = share_windows(*places, 40, 200, model.bins_together(0.6))
    predict = partial(
        model.window_probabilities, center_fraction=0.6, both_strands=False
    )
    values = np.empty((len(rows), 2))
    for numbers, part in shared.predicted(made.reference, predict):
        values[numbers] = part
    labels = made.data.labels.rows(rows)
    expected = np.median(
        [auroc(labels[:, track], values[:, track]).value for track in range(2)]
    )
    assert len(shared.windows) < len(rows) and found["auroc"] == pytest.approx(
        expected, abs=1e-6
    )


def test_predictions_depend_on_neither_batch_nor_strand(
    made: Made, model_dir: Path
) -> None:
    model = load_chromatin_model(model_dir)
    sequences = [
        made.reference.fetch(window) for window in made.data.windows(200, range(40, 60))
    ]
    together = model.predict(sequences, batch_size=20)
    alone = np.concatenate([model.predict([one], batch_size=1) for one in sequences])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert together.shape == (20, 1, 2)
    turned = model.predict([reverse_complement(one) for one in sequences])
    np.testing.assert_allclose(turned, together, atol=1e-5)
    # All five bins at once: the one in the middle is as before, the other way round they turn.
    several = model.predict(sequences, center_fraction=1)
    assert several.shape == (20, 5, 2)
    np.testing.assert_allclose(several[:, 2:3], together, atol=1e-5)
    turned = model.predict(
        [reverse_complement(one) for one in sequences], center_fraction=1
    )
    np.testing.assert_allclose(turned[:, ::-1], several, atol=1e-5)
    with fails(ValueError):
        model.window_probabilities(["ACG"])
    other = ChromatinData(
        made.data.bins, made.data.labels, made.data.tracks[::-1], made.data.info
    )
    with fails(ModelError):
        predict_bins([model], other, made.reference, made.data.rows("test"))


def test_an_ensemble_predicts_the_mean(
    made: Made, model_dir: Path, tmp_path: Path
) -> None:
    train_model(made, tmp_path / "second", settings(training={"steps": 10}), member=1)
    combine_models([model_dir, tmp_path / "second"], tmp_path / "both")
    rows = made.data.rows("test")[:20]
    both, *parts = (
        predicted(made, [path], rows)
        for path in (tmp_path / "both", model_dir, tmp_path / "second")
    )
    np.testing.assert_allclose(both, np.mean(parts, axis=0), atol=2e-6)
    mean = predicted(made, [model_dir, tmp_path / "second"], rows)
    # The ensemble averages its members on each strand, this the strands of each member.
    np.testing.assert_allclose(both, mean, atol=2e-6)
    with fails(UsageError):
        combine_models([model_dir], tmp_path / "one")
    train_model(
        made,
        tmp_path / "narrow",
        settings(training={"steps": 2, "bins_per_window": 1}),
        window=80,
    )
    with fails(ModelError):
        combine_models([model_dir, tmp_path / "narrow"], tmp_path / "x")


@pytest.mark.slow
def test_the_paper_s_head_on_the_first_token(made: Made, tmp_path: Path) -> None:
    """[CLS] alone learns the motifs of a window's middle bin, from one bin a window."""
    config = settings(
        model={"pooling": "cls"}, training={"bins_per_window": 1, "steps": 400}
    )
    train_model(made, tmp_path / "m", config, window=80)
    rows = held_out_rows(made.data, config.chromatin.evaluation)
    values = predicted(made, [tmp_path / "m"], rows)
    labels = made.data.labels.rows(rows)
    assert lowest(labels, values) > 0.85


def test_neighboring_bins_are_bins_of_the_same_contig_and_split(made: Made) -> None:
    rows = made.data.rows("train")
    found = neighboring_bins(made.data, rows, 5)
    starts = made.data.bins["start"].to_numpy()
    np.testing.assert_array_equal(found[:, 2], rows)
    for column, side in enumerate((-80, -40, 0, 40, 80)):
        there = found[:, column] >= 0
        near = found[there, column]
        np.testing.assert_array_equal(starts[near], starts[rows[there]] + side)
        assert set(made.data.bins["split"].iloc[near]) == {"train"}
    assert (found[0] == [-1, -1, *rows[:3]]).all()
    # In another order of the bins each has the same neighbors.
    mixed = np.random.default_rng(0).permutation(len(made.data))
    back = np.append(np.argsort(mixed), -1)
    other = replace(made.data, bins=made.data.bins.iloc[mixed].reset_index(drop=True))
    theirs = neighboring_bins(other, back[rows], 5)
    np.testing.assert_array_equal(theirs, back[found])


def test_training_begins_with_the_prevalence_of_the_tracks(
    made: Made, tmp_path: Path
) -> None:
    """The first loss is about the best that a constant prediction has."""
    training = {"steps": 1, "optimizer": {"learning_rate": 1e-9, "warmup_steps": 0}}
    config = settings(training=training, model={"ensemble": False})
    found = train_model(made, tmp_path / "m", config)["valid"]["loss"]
    labels = made.data.labels.rows(made.data.rows("valid"))
    weight = config.chromatin.training.positive_weight
    share = made.data.labels.rows(made.data.rows("train")).mean(axis=0)
    odds = weight * share / (1 - share)
    p = odds / (1 + odds)
    best = -(weight * labels * np.log(p) + (1 - labels) * np.log(1 - p)).mean()
    assert found == pytest.approx(best, rel=0.1)


def test_a_narrower_window_learns_from_as_many_bins_and_each_member_has_a_seed(
    made: Made,
) -> None:
    config = settings(training={"seed": 5})
    assert [task_of(made, config, 200, member).config.seed for member in range(3)] == [
        5,
        6,
        7,
    ]

    def batch_size(config: Config, window: int) -> int:
        return task_of(made, config, window, 0).config.batch_size

    config = settings(training={"bins_per_window": 5})
    assert batch_size(config, 200) == 16
    assert batch_size(config, 40) == 80
    assert batch_size(config, 120) == round(16 * 5 / 3)
    # In however many parts it is computed.
    parted = settings(training={"bins_per_window": 5, "grad_accumulation": 4})
    assert batch_size(parted, 120) == round(16 * 5 / 3)
    paper = settings(model={"pooling": "cls"}, training={"bins_per_window": 1})
    assert batch_size(paper, 40) == 16


def test_mean_probability_survives_large_logits() -> None:
    tracks = tuple(NamedTrack(track=name, group="TF") for name in "abc")
    sizes = {"window": 60, "bin": 20, "pooling": "cls", "bin_layers": 0, "members": 2}
    ensemble = build_network(small_encoder(), ChromatinSettings(**sizes, tracks=tracks))
    logits = [
        torch.tensor([[[-80.0, 0.0, 90.0]]]),
        torch.tensor([[[-80.0, 2.0, 90.0]]]),
    ]
    for member, value in zip(ensemble.members, logits, strict=True):
        member.forward = lambda *_, value=value: value  # type: ignore[method-assign]
    out = ensemble(torch.zeros(1), torch.zeros(1), torch.zeros(1))[0, 0]
    mean = (0.5 + torch.sigmoid(torch.tensor(2.0))) / 2
    torch.testing.assert_close(
        out, torch.stack([torch.tensor(-80.0), mean.logit(), torch.tensor(90.0)])
    )


# A training's batches are the bytes of batches made window by window from the file


STEPS, BATCH = 12, 8


@pytest.fixture
def data(reference: Reference) -> ChromatinData:
    """All bins of 40 bp of four contigs, ends and runs of N among them, in an order of their own."""
    contigs = list(reference.contigs)
    lengths = enumerate(reference.contigs.values())
    places = [
        (owner, start)
        for owner, length in lengths
        for start in range(0, length - 39, 40)
    ]
    rng = np.random.default_rng(0)
    owners, starts = np.array(places)[rng.permutation(len(places))].T
    splits = (rng.random(len(places)) < 0.1).astype(np.intp)
    labels = PackedLabels.from_dense(rng.random((len(places), 11)) < 0.3)
    opposites = {"t1": "t4", "t4": "t1"}  # the other tracks have no strand
    tracks = tuple(
        Track(f"t{n}", "TF", opposite=opposites.get(f"t{n}", "")) for n in range(11)
    )
    return ChromatinData(
        make_bins(contigs, owners, starts, splits, 40), labels, tracks, {"bin_size": 40}
    )


def chromatin_task(
    data: ChromatinData,
    reference: Reference,
    tokenizer: DnaTokenizer,
    config: ChromatinConfig,
    positions: int,
) -> ChromatinTask:
    """A task on data in memory."""
    run = Config(chromatin=config)
    task = ChromatinTask(
        run, Path(), None, Path(), reference, config.data.window, member=0
    )
    encoder = small_encoder(tokenizer.vocabulary, max_length=positions)
    task.bins, task.start = data, Initialization(encoder, tokenizer, config.model)
    return task


def objective(
    data: ChromatinData,
    reference: Reference,
    tokenizer: DnaTokenizer,
    positions: int = 300,
    **keys: Any,
) -> ChromatinTask:
    config = ChromatinConfig.model_validate(
        {
            "data": {
                "bin": 40,
                "window": keys.get("window", 600),
                "shift_bp": keys.get("shift", 0),
            },
            "model": {"pooling": "bin", "bin_layers": keys.get("bin_layers", 0)},
            "training": {
                "batch_size": BATCH,
                "bins_per_window": keys.get("neighbors", 1),
            },
        }
    )
    return chromatin_task(data, reference, tokenizer, config, positions)


def same(one: Batch, other: Batch) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype, name
        assert value.shape == other[name].shape, name
        assert value.numpy().tobytes() == other[name].numpy().tobytes(), name


@pytest.mark.parametrize("native_from", [0, 1 << 60])
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"shift": 100, "neighbors": 5},
        {"shift": 19, "neighbors": 3, "bin_layers": 1},
        {"window": 8000, "shift": 700, "neighbors": 9, "positions": 4096},
        {
            "window": 2000,
            "shift": 40,
            "neighbors": 3,
            "positions": 60,
        },  # less than a window's tokens
    ],
)
def test_batches_are_those_made_window_by_window(
    data: ChromatinData,
    reference: Reference,
    tokenizer: DnaTokenizer,
    monkeypatch: pytest.MonkeyPatch,
    keys: dict[str, Any],
    native_from: int,
) -> None:
    monkeypatch.setattr(tokenizers, "NATIVE_FROM", native_from)
    made = objective(data, reference, DnaTokenizer(tokenizer.content), **keys)
    plain = PlainBatches(made, reference)
    before = made.neighbors.copy()
    for step in range(STEPS):
        expected = plain.batch(step, 0, BATCH)
        same(made.batch(step, 0, BATCH), expected)
        for first in range(
            0, BATCH, 2
        ):  # of a share of the step, whose rows are padded to their own longest
            same(made.batch(step, first, 2), plain.batch(step, first, 2))
    np.testing.assert_array_equal(made.neighbors, before)


def test_a_step_is_always_the_same(
    data: ChromatinData, reference: Reference, tokenizer: DnaTokenizer
) -> None:
    """Whatever was made before, by however many threads."""
    one = objective(data, reference, tokenizer, shift=50, neighbors=3)
    first = [one.batch(step, 0, BATCH) for step in range(STEPS)]
    other = objective(data, Reference(reference.path), tokenizer, shift=50, neighbors=3)
    other.threads = 3
    for step in reversed(range(STEPS)):
        same(other.batch(step, 0, BATCH), first[step])
    # Windows meet ends and N: the batches would prove little without.
    made = objective(data, reference, tokenizer, window=2000)
    gaps = {
        piece for piece, text in enumerate(tokenizer.pieces) if text.startswith("N")
    }
    with_gaps = sum(
        bool(gaps & set(row))
        for step in range(STEPS)
        for row in made.batch(step, 0, BATCH)["ids"].tolist()
    )
    assert STEPS * BATCH / 4 < with_gaps < STEPS * BATCH
