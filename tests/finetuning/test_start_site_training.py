"""Training of models of start sites: windows, labels and draws, and what is learned of a genome with a motif."""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.config.reading import load_config
from bigbird_dna.config.start_sites import DenseConfig
from bigbird_dna.data.start_sites import LONG, StartSites
from bigbird_dna.errors import ConfigError, DataError
from bigbird_dna.finetuning.start_sites import StartSiteTask
from bigbird_dna.genome.promoters import read_loci, write_loci
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    UNKNOWN,
    Interval,
    Locus,
    base_codes,
    reverse_complement,
)
from bigbird_dna.model.directory import load
from bigbird_dna.training.loop import Batch
from tests.cli.command import Run, invoke, refused
from tests.golden.messages import fails
from tests.tiny_run import DENSE, MOTIF
from tests.toys import checksums, texts

WINDOW, MARGIN, SMOOTHING = (DENSE[key] for key in ("window", "margin", "smoothing_bp"))
WHOLE_WINDOWS = ["promoters.dense.training.short=0"]


def task_of(
    config: Path,
    *keys: str,
    reference: Any = None,
    promoters: Path | None = None,
    pretrained: Path | None = None,
) -> StartSiteTask:
    """The training of a configuration with changed keys."""
    run = load_config(config, keys)
    paths = run.paths
    return StartSiteTask(
        run,
        promoters or paths.promoters,
        reference or Reference(paths.reference),
        paths.tokenizer,
        pretrained,
    )


def rows_of(batch: Batch) -> list[tuple[str, np.ndarray]]:
    """The bases and labels of the windows of a batch."""
    rows = []
    for bases, owners, labels in zip(
        batch["bases"], batch["owners"], batch["labels"], strict=True
    ):
        size = int((owners >= 0).sum())
        assert (bases[size:] == UNKNOWN).all() and labels[:, size:].isnan().all()
        letters = np.array([*"ACGTN"])[bases[:size].numpy()]
        rows.append(("".join(letters), labels[:, :size].numpy()))

    return rows


# Windows and labels


def test_labels_fall_from_each_site_on_both_strands(tiny_config: Path) -> None:
    """The motif ends right before each start site, whichever strand a window is read from."""
    task = task_of(tiny_config, "promoters.dense.training.short=0.3")
    rows = [row for step in range(6) for row in rows_of(task.batch(step, 0, 8))]
    strands = set()
    for text, labels in rows:
        codes, length = base_codes(text), len(text)
        assert (codes < UNKNOWN).all()
        known = np.isfinite(labels)
        assert (known[0] == known[1]).all()
        if length < WINDOW - MARGIN:  # a part of a window, or at the end of a contig
            assert known.all() or length >= WINDOW - 2 * MARGIN
        elif length == WINDOW:
            (inside,) = np.nonzero(known[0])
            assert (inside == np.arange(MARGIN, WINDOW - MARGIN)).all()

        for row, motif, site in ((0, MOTIF, 12), (1, reverse_complement(MOTIF), -1)):
            starts = {at for at in range(length) if text.startswith(motif, at)}
            sites = {at + site for at in starts}
            distance = np.full(length, np.inf)
            for at in sites:
                distance = np.minimum(distance, abs(np.arange(length) - at))
            expected = np.maximum(0, 1 - distance / (SMOOTHING + 1))
            # A motif may be cut off at the ends, and its site not.
            middle = np.zeros(length, bool)
            middle[len(MOTIF) + SMOOTHING + 1 : length - len(MOTIF) - SMOOTHING - 1] = 1
            compared = known[row] & middle
            np.testing.assert_allclose(
                labels[row][compared], expected[compared], atol=1e-6
            )
            strands |= {row for value in labels[row][compared] if value == 1}

    assert strands == {0, 1} and len({len(text) for text, _ in rows}) > 5


@given(st.data())
def test_every_base_of_a_region_is_scored_but_margins_inside_a_contig(
    data: st.DataObject,
) -> None:
    length = data.draw(st.integers(1, 90))
    start = data.draw(st.integers(0, length - 1))
    end = data.draw(st.integers(start + 1, length))
    margin = data.draw(st.integers(0, 8))
    window = data.draw(st.integers(2 * margin + 1, 40))
    sites = StartSites.__new__(StartSites)
    sites.reference = texts(a="A" * start + "C" * (end - start) + "G" * (length - end))
    sites.dense = DenseConfig(window=window, margin=margin, smoothing_bp=2)
    sites.sites, sites.ignored = {}, defaultdict(list)
    interval = Interval("a", start, end)
    sites.splits = type("", (), {"intervals": lambda *_: [interval]})()  # type: ignore[assignment]
    (region,) = sites.regions("train")
    scored = np.zeros(length, bool)
    for first in range(region.first, region.last + 1):
        text, begin = sites.text(region, first)
        assert {*text} == {"C"} and len(text) <= window
        if window <= end - start and length < LONG * window:
            assert len(text) == window  # the contig's ends are not seen
        known = np.isfinite(sites.labels_of_window(region, begin, len(text)))[0]
        scored[begin : begin + len(text)] |= known

    expected = np.zeros(length, bool)
    first = start + margin * (start > 0)
    expected[first : max(first, end - margin * (end < length))] = True
    assert (scored == expected).all()


def test_no_held_out_base_is_read_in_training(
    tiny_config: Path, tmp_path: Path
) -> None:
    """Regions within contigs: their bases are N here, and no window of the training has one."""
    held_out = {
        "valid": ["one:9001-12000"],
        "test": ["one:21001-21100", "two", "three"],
    }
    keys = [f"genome.{split}={json.dumps(named)}" for split, named in held_out.items()]
    run = load_config(tiny_config)
    with Reference(run.paths.reference) as reference:
        contigs = {
            name: reference.fetch(Interval(name, 0, size))
            for name, size in reference.contigs.items()
        }
    one = contigs["one"]
    hidden = one[:9000] + "N" * 3000 + one[12000:21000] + "N" * 100 + one[21100:]
    masked = texts(one=hidden, two="N" * 12_000, three="N" * 12_000)
    for more in ("near_sites=1", "near_sites=0", "short=1"):
        task = task_of(
            tiny_config, *keys, f"promoters.dense.training.{more}", reference=masked
        )
        ends = set()
        for text, _ in rows_of(task.batch(0, 0, 200)):
            assert "N" not in text
            at = hidden.find(text)
            if at < 0:
                at = hidden.find(reverse_complement(text))
            ends |= {at // 9000, (at + len(text)) // 9000}
        assert ends >= {0, 1, 2}

    # The validation windows are of the held-out region alone.
    task = task_of(tiny_config, *keys)
    for text, labels in task.watched:
        assert text in one[9000:12000] and np.isnan(labels[:, :MARGIN]).all()
    assert len(task.watched) == (3000 - WINDOW) // (WINDOW - 2 * MARGIN) + 1


def test_draws_depend_on_seed_step_and_number_alone(tiny_config: Path) -> None:
    def drawn(task: StartSiteTask, *which: int) -> list[tuple[str, list[Any]]]:
        rows = rows_of(task.batch(*which))
        return [(text, np.nan_to_num(labels, nan=-1).tolist()) for text, labels in rows]

    task = task_of(tiny_config)
    whole = drawn(task, 3, 0, 8)
    other = task_of(tiny_config)
    parts = [drawn(other, 3, number, 1)[0] for number in (7, 0, 3, 6, 1, 2, 5, 4)]
    assert sorted(parts) == sorted(whole) and parts[1] == whole[0]
    assert drawn(other, 3, 2, 3) == whole[2:5]
    assert drawn(task, 4, 0, 8) != whole
    seed = task_of(tiny_config, "promoters.dense.training.seed=2")
    assert drawn(seed, 3, 0, 8) != whole


def test_ignored_bases_have_no_label_on_their_strand(
    tiny_config: Path, tmp_path: Path
) -> None:
    """Intervals with a strand, without one, and around a start site, whose own labels stay."""
    run = load_config(tiny_config)
    site = next(x for x in read_loci(run.paths.promoters) if x.contig == "one")
    near = (site.position - 40, site.position + 41, "x", 0, site.strand)
    rows = [("one", 100, 130, "a", 0, "-"), ("one", 140, 150), ("one", *near)]
    ignore = tmp_path / "ignore.bed"
    ignore.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    with Reference(run.paths.reference) as reference:
        plain, data = (
            StartSites(run, run.paths.promoters, reference, x) for x in (None, ignore)
        )
        region = data.training[0]
        assert region.interval.contig == "one"
        without, labels = (x.labels(region, 90, 20_000) for x in (plain, data))

    missing = np.isnan(labels)
    assert not np.isnan(without).any()
    assert (labels[~missing] == without[~missing]).all()
    expected = np.zeros_like(missing)
    expected[1, 10:40] = expected[:, 50:60] = True
    row = "+-".index(site.strand)
    expected[row, site.position - 130 : site.position - 49] = True
    expected[without > 0] = False
    assert (missing == expected).all()


def test_the_place_of_a_site_in_a_contig_is_not_known_from_its_window(
    tiny_config: Path, tmp_path: Path
) -> None:
    """Of all windows of a contig that have the site among their scored bases, none is likelier."""
    keys = [*WHOLE_WINDOWS, "promoters.dense.training.near_sites=1"]
    size = WINDOW + 60
    write_loci(tmp_path / "sites.tsv", [Locus("one", WINDOW // 2 + 20, "+", "x")])
    task = task_of(
        tiny_config,
        *keys,
        "genome.valid=[two]",
        reference=texts(one="A" * size, two="A" * size, three="A" * size),
        promoters=tmp_path / "sites.tsv",
    )
    (region,) = (x for x in task.data.training if len(x.sites))
    rng = np.random.default_rng(1)
    starts = [task.data._place(rng)[1] for _ in range(4000)]
    counts = np.bincount(np.array(starts) - region.first)
    assert len(counts) == region.last - region.first + 1
    assert abs(counts / counts.mean() - 1).max() < 0.6


@pytest.mark.parametrize("near", [0, 1])
def test_windows_near_sites_have_one_that_is_scored(
    tiny_config: Path, near: int
) -> None:
    task = task_of(
        tiny_config, *WHOLE_WINDOWS, f"promoters.dense.training.near_sites={near}"
    )
    rows = rows_of(task.batch(0, 0, 300))
    counts = np.array([np.nansum(labels == 1) for _, labels in rows])
    if near:
        assert (counts > 0).all()
        # Anywhere in what is scored.
        places = np.concatenate([np.nonzero(labels == 1)[1] for _, labels in rows])
        full = [(places < edge).mean() for edge in (50, 80, 110)]
        assert np.all(np.diff([0, *full, 1]) > 0.1)
    else:  # one site in 300 bp
        expected = (WINDOW - 2 * MARGIN) / 300
        assert counts.mean() == pytest.approx(expected, abs=0.15)
        assert (counts == 0).mean() > 0.2


def test_the_loss_is_the_mean_cross_entropy_of_scored_bases(tiny_config: Path) -> None:
    task = task_of(tiny_config)
    torch.manual_seed(0)
    network = task.build().eval()
    batch = task.batch(0, 0, 5)
    totals = task.counts(batch)
    with torch.no_grad():
        loss = float(task.loss(network, batch, totals))
        parts = [task.batch(0, number, 1) for number in range(5)]
        assert sum(task.counts(part)["labels"] for part in parts) == totals["labels"]
        alone = sum(float(task.loss(network, part, totals)) for part in parts)
    model = task.model(network)
    terms = []
    for text, labels in rows_of(batch):
        probs = model.window_probabilities([text], both_strands=False)[0]
        probs, labels = probs[np.isfinite(labels)], labels[np.isfinite(labels)]
        terms += (-labels * np.log(probs) - (1 - labels) * np.log1p(-probs)).tolist()

    assert len(terms) == totals["labels"]
    assert loss == pytest.approx(np.mean(terms), rel=1e-4)
    assert alone == pytest.approx(loss, rel=1e-5)


# Trainings


def train(config: Path, output: Path, *keys: str) -> Path:
    words = [word for key in keys for word in ("--set", f"promoters.dense.{key}")]
    places = ("-o", output, "--checkpoint-dir", output.parent / "checkpoints")
    invoke("finetune-promoter", config, *words, *places)
    return output


def test_a_training_lowers_the_loss_and_goes_on_where_it_was_interrupted(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw: Callable[..., Batch] = StartSiteTask.batch
    training = {"steps": 15, "evaluate_every": 5}
    keys = [f"training.{name}={value}" for name, value in training.items()]

    def interrupted(self: StartSiteTask, step: int, first: int, count: int) -> Batch:
        if step == 8:
            raise DataError("interrupted")
        return draw(self, step, first, count)

    with monkeypatch.context() as patch, pytest.raises(DataError):
        patch.setattr(StartSiteTask, "batch", interrupted)
        train(tiny_config, tmp_path / "resumed/model", *keys)
    assert not (tmp_path / "resumed/model").exists()
    models = [
        train(tiny_config, tmp_path / name / "model", *keys)
        for name in ("resumed", "other")
    ]
    assert checksums(models[0]) == checksums(models[1])

    lines = [
        json.loads(line)
        for line in (models[0] / "training.jsonl").read_text().splitlines()
    ]
    losses = [line["evaluation"]["loss"] for line in lines if "evaluation" in line]
    assert len(losses) >= 3 and losses[-1] < losses[0]
    metrics = json.loads((models[0] / "metrics.json").read_text())
    assert metrics["valid"]["loss"] == pytest.approx(losses[-1])
    loaded = load(models[0])
    section = DenseConfig.model_validate(DENSE)
    assert (loaded.settings.window, loaded.settings.margin) == (WINDOW, MARGIN)
    assert loaded.config.kmers == section.kmers
    provenance = json.loads((models[0] / "provenance.json").read_text())
    assert provenance["promoters_sha256"] and provenance["reference"]


def test_a_model_of_start_sites_starts_another_one_of_the_same_layers(
    tiny_config: Path, tmp_path: Path
) -> None:
    first = train(tiny_config, tmp_path / "first", "training.steps=2")

    def started(*keys: str) -> dict[str, torch.Tensor]:
        words = [f"promoters.dense.{key}" for key in ("initial=pretrained", *keys)]
        task = task_of(tiny_config, *words, pretrained=first)
        network = task.build()
        task.initialize(network)
        return network.state_dict()

    weights = load(first).network.state_dict()
    torch.testing.assert_close(started(), weights, rtol=0, atol=0)
    for key in ("channels", "layers_before", "bin"):
        with fails(ConfigError, f"promoters.dense.{key} is 4", first):
            started(f"{key}=4")


def test_what_cannot_be_trained_is_refused(
    tiny_config: Path, tmp_path: Path, run: Run
) -> None:
    output = tmp_path / "model"
    words = ("finetune-promoter", tiny_config, "-o", output)
    words += ("--checkpoint-dir", tmp_path / "checkpoints")
    promoters = load_config(tiny_config).paths.promoters
    loci = list(read_loci(promoters))
    elsewhere, held_out = tmp_path / "elsewhere.tsv", tmp_path / "held_out.tsv"
    write_loci(elsewhere, [*loci, Locus("four", 9, "+", "far")])
    write_loci(held_out, [locus for locus in loci if locus.contig != "one"])
    for path, named in ((elsewhere, "four"), (held_out, "no start site")):
        result = run(*words, "--promoters", path)
        refused(result, 1, path, named, after_log=True)
    refused(run(*words, "--shuffle-labels"), 2, "--negative-set")
    wrong = ("--set", "promoters.dense.margin=80")
    refused(run(*words, *wrong), 2, "two margins of 80")
    tiny = ("--set", "genome.valid=['two:51-90']")
    refused(run(*words, *tiny), 1, "genome.valid", after_log=True)
    assert not output.exists()


def test_windows_of_many_tokens_are_warned_of(
    tiny_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = ("encoder.max_length=40", "pretraining.sequence_tokens=40")
    task_of(tiny_config, *keys).check()
    assert "validation windows have more tokens" in capsys.readouterr().err
