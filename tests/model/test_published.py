"""The list of published models: what is no possible value is refused, and what is bundled is what it says."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pysam
import pytest
import torch
import yaml
from measured_promoters import prepare_measured
from sklearn.metrics import roc_auc_score

import bigbird_dna
from bigbird_dna.calibration.call_precision import read_call_precision
from bigbird_dna.calibration.maps import FILE, read_calibration
from bigbird_dna.config.reading import load_config
from bigbird_dna.data.predictions import blocks_of, read_predictions
from bigbird_dna.disk.atomic import checksum, read_json
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.fasta import read_records
from bigbird_dna.genome.promoters import place, read_promoters
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import Interval, inside, window_around
from bigbird_dna.metrics.reliability import calibration_metrics
from bigbird_dna.model.directory import load, load_pretrained
from bigbird_dna.model.model import METRICS
from bigbird_dna.model.published import PublishedModel, read_published
from bigbird_dna.pretraining.held_out import HeldOut
from bigbird_dna.tokens.encode import tokenize
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.training.distributed import World
from tests.cli.command import Run, invoke, table
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.toys import cases, lines, random_dna, written

MEASURED = "urtecho_tss_expression_model_format.txt.gz"
ENTRY: dict[str, Any] = {
    "description": "A toy of the tests",
    "task": "promoter",
    "license": "free",
    "sha256": "0" * 64,
    "urls": ["https://a/toy.tar", "https://b/toy.tar"],
}
PACKAGE = read_published()


def read(path: Path, entries: object) -> dict[str, PublishedModel]:
    return read_published(written(path, yaml.safe_dump(entries, width=10_000)))


def test_entries_are_read(tmp_path: Path) -> None:
    bundled = {key: ENTRY[key] for key in ("description", "task", "license")}
    published = read(tmp_path / "models.yaml", {"toy": ENTRY, "own": bundled})
    assert list(published) == ["own", "toy"] and published["own"].urls is None
    assert published["toy"].model_dump() == ENTRY | {"urls": tuple(ENTRY["urls"])}


IMPOSSIBLE: dict[str, list[object]] = {
    "license": [7],
    "task": ["promoters"],
    "sha256": ["0" * 63, "0" * 64 + "\n", "A" * 64],
    "urls": [
        *("/x", "https://a/x.tar", [], {"a": "b"}),
        *(["file:///etc/passwd"], ["https://a/b c"], [7]),
    ],
    "sha": ["x"],
}


@pytest.mark.parametrize(("field", "value"), cases(IMPOSSIBLE))
def test_values_that_cannot_be(tmp_path: Path, field: str, value: object) -> None:
    path = tmp_path / "models.yaml"
    with fails(ConfigError, path, "toy", field):
        read(path, {"toy": ENTRY | {field: value}})


@pytest.mark.parametrize("field", [name for name in ENTRY if name != "urls"])
def test_every_field_is_needed(tmp_path: Path, field: str) -> None:
    with fails(ConfigError, field):
        read(
            tmp_path / "models.yaml",
            {"toy": {k: v for k, v in ENTRY.items() if k != field}},
        )


@pytest.mark.parametrize("text", ["- a", "a: 7", "a: {}\na: {}", "a: ["])
def test_files_that_are_no_list(tmp_path: Path, text: str) -> None:
    with fails(ConfigError, tmp_path / "models.yaml"):
        read_published(written(tmp_path / "models.yaml", text))


def test_a_list_of_comments_alone_is_empty(tmp_path: Path) -> None:
    assert read_published(written(tmp_path / "models.yaml", "# none yet\n")) == {}


@pytest.mark.parametrize(
    "name", [name for name, model in PACKAGE.items() if not model.urls]
)
def test_the_package_has_its_bundled_models(name: str) -> None:
    """As the list says: whole, small, of the task."""
    directory = REPOSITORY / "resources/models" / name
    assert sum(file.stat().st_size for file in directory.iterdir()) < 10_500_000
    assert load(name).task == PACKAGE[name].task


def test_nothing_is_bundled_without_an_entry() -> None:
    home = REPOSITORY / "resources/models"
    found = {one.name for one in home.iterdir()} if home.is_dir() else set()
    assert found == {name for name, model in PACKAGE.items() if not model.urls}


# The models that come with the package: they score and embed as they are, as well as their figures say


CONFIG = REPOSITORY / "workflow/config/yeast.yaml"
ENCODER, PROMOTERS = (
    REPOSITORY / "resources/models" / name
    for name in ("yeast", "yeast-promoters-window")
)


@pytest.fixture(scope="module")
def yeast(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("yeast") / "reference.fa.gz"
    prepare_reference(next((shared_data / "yeast").glob("Saccharomyces*.fa.gz")), path)
    return path


def sequences(count: int, length: int) -> list[str]:
    return [random_dna(length, seed) for seed in range(count)]


def test_bundled_models_score_and_embed_by_their_names() -> None:
    encoder, promoters = (
        bigbird_dna.load("yeast"),
        bigbird_dna.load("yeast-promoters-window"),
    )
    windows = sequences(5, 400)
    scores = promoters.predict(windows)
    assert scores.shape == (5,) and ((scores > 0) & (scores < 1)).all()
    assert promoters.predict(windows[2:3])[0] == pytest.approx(scores[2], abs=1e-6)
    for model in (encoder, promoters):
        vectors = model.embed(sequences(3, 1000))
        assert vectors.shape == (3, 128) and np.isfinite(vectors).all()


def test_the_classifier_is_calibrated_on_its_own_predictions(
    run: Run, tmp_path: Path
) -> None:
    """So calibrated scores and thresholds are there as soon as the package is."""
    calibration = read_calibration(
        PROMOTERS / FILE, checksum(PROMOTERS / "model.safetensors")
    )
    assert calibration.fitted_on["contigs"] == ["XI"]
    predictions = read_predictions(PROMOTERS / "predictions.parquet")
    assert set(predictions["contig"]) == {"VII", "XV"}
    found = calibration_metrics(
        predictions["label"],
        calibration(predictions["probability"]),
        blocks=blocks_of(predictions),
    )
    assert found.ece < 0.03
    fasta = written(tmp_path / "genome.fa", ">c\n" + sequences(1, 1000)[0] + "\n")
    words = ("score-promoters", PROMOTERS, fasta, "--stride", 200, "--device", "cpu")
    raw, held = (run(*words, *more) for more in ((), ("--calibrated",)))
    assert (raw.code, held.code) == (0, 0)
    before, after = (
        [float(row["score"]) for row in table(one.out)] for one in (raw, held)
    )
    assert len(before) == len(after) and before != after
    assert np.array_equal(np.argsort(before), np.argsort(after))


def test_the_encoder_predicts_a_held_out_contig_as_its_figures_say(
    yeast: Path, tmp_path: Path
) -> None:
    model = load_pretrained(ENCODER)
    metrics = json.loads((ENCODER / METRICS).read_text())
    config = load_config(CONFIG, ["tokens.genome_passes=1", "genome.exclude=[Mito]"])
    tokenize(config, yeast, ENCODER / "tokenizer.model", tmp_path)
    store = TokenStore(tmp_path / "valid", model.tokenizer)
    settings = config.pretraining
    held_out = HeldOut.draw(
        store,
        model.tokenizer,
        settings.sequence_tokens,
        settings.evaluation_sequences,
        pairs=False,
    )
    world = World(0, 1, torch.device("cpu"))
    with torch.inference_mode():
        bits, _ = held_out.predict(model.network.eval(), model.tokenizer, world)
    assert bits.sum() / held_out.bases.sum() == pytest.approx(
        metrics["bits_per_base"], abs=2e-3
    )


def test_the_classifier_tells_promoters_from_what_lies_between(
    yeast: Path, shared_data: Path
) -> None:
    """Of a test contig: the promoters, and as many windows 700 bp downstream of their start sites."""
    model = bigbird_dna.load("yeast-promoters-window")
    loci = read_promoters(shared_data / "yeast/Sc_EPDnew_002_sacCer3.sga")
    with Reference(yeast) as reference:
        placed, _ = place(loci, reference.contigs, load_assembly("sacCer3"), "EPDnew")
        own = [locus for locus in placed if locus.contig in ("VII", "chrVII")][:150]
        windows, labels = [], []
        for locus in own:
            window = window_around(locus, 300, 100)
            ahead = 700 if locus.strand == "+" else -700
            for label, shift in ((1, 0), (0, ahead)):
                moved = Interval(
                    window.contig,
                    window.start + shift,
                    window.end + shift,
                    window.strand,
                )
                if inside(moved, reference.contigs):
                    windows.append(reference.fetch(moved))
                    labels.append(label)
    assert roc_auc_score(labels, model.predict(windows)) > 0.85


@pytest.fixture(scope="module", params=["yeast-promoters", "pombe-promoters"])
def yeasts(
    request: pytest.FixtureRequest,
    shared_data: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Path, Path]:
    """The name of a model of start sites, its genome, and the start sites of that."""
    home = tmp_path_factory.mktemp(request.param)
    genome, promoters, assembly = {
        "yeast-promoters": (
            "yeast/Saccharomyces*.fa.gz",
            "yeast/Sc_EPDnew_002_sacCer3.sga",
            "sacCer3",
        ),
        "pombe-promoters": (
            "pombe/*.fa.gz",
            "pombe/Sp_EPDnew_002_spo2.sga.gz",
            "ASM294v2",
        ),
    }[request.param]
    reference, sites = home / "reference.fa.gz", home / "promoters.tsv"
    prepare_reference(next(shared_data.glob(genome)), reference)
    words = ("--reference", reference, "--assembly", assembly, "-o", sites)
    invoke("prepare promoters", shared_data / promoters, *words)
    return request.param, reference, sites


def test_calls_have_the_precision_that_was_found(
    yeasts: tuple[str, Path, Path], tmp_path: Path, run: Run
) -> None:
    """In 150 kb of the contig of validation, by the default FDR."""
    name, reference, sites = yeasts
    shipped = read_call_precision(REPOSITORY / "resources/models" / name / "calls.json")
    ((contig, _, bases),) = (
        region.partition(":") for region in shipped.fitted_on["contigs"]
    )
    first = int(bases.partition("-")[0] or 1) - 1
    with Reference(reference) as genome:
        part = genome.fetch(Interval(contig, first, first + 150_000))
    fasta, output = (
        written(tmp_path / "x.fa", f">x\n{part}\n"),
        tmp_path / "calls.bed.gz",
    )
    assert run("call-promoters", name, fasta, "-o", output).code == 0
    known = pd.read_csv(sites, sep="\t", comment="#")
    known = known[known["contig"] == contig]
    right = total = 0
    for _, start, _, _, _, strand, *_ in lines(output):
        near = known[known["strand"] == strand]["position"] - first - int(start)
        right, total = right + (near.abs() <= 100).any(), total + 1
    assert 40 <= total <= 120
    assert right / total > 0.6


@pytest.mark.slow
def test_models_of_start_sites_call_as_their_figures_say(
    yeasts: tuple[str, Path, Path], tmp_path: Path, run: Run
) -> None:
    """Along the contig of validation and calibration."""
    name, reference, sites = yeasts
    calibrate = (
        "model calibrate",
        name,
        "--reference",
        reference,
        "--promoters",
        sites,
    )
    assert run(*calibrate, "-o", tmp_path / "again").code == 0
    bundled = REPOSITORY / "resources/models" / name
    told, found = (
        read_json(home / METRICS)["calls"]["valid"]
        for home in (bundled, tmp_path / "again")
    )
    assert found == pytest.approx(
        told, abs=5e-3
    )  # scores on another CPU, by which ranks change
    assert found["average_precision_within_100_bp"] > 0.65
    shipped, again = (
        read_call_precision(home / "calls.json")
        for home in (bundled, tmp_path / "again")
    )
    assert again.fitted_on.items() <= shipped.fitted_on.items()
    assert again.tss == shipped.tss
    np.testing.assert_allclose(
        again(shipped.scores)[0], shipped(shipped.scores)[0], atol=0.02
    )


def test_the_human_model_finds_start_sites_wherever_they_are(shared_data: Path) -> None:
    """Of a chromosome without training sequences: parts of those around start sites, and of others as published,
    in which no place must be preferred."""
    model = bigbird_dna.load("human-promoters")
    rng = np.random.default_rng(1)
    parts, places = [], []
    around = shared_data / "human/EPDnew_006_m1000_p999.fa.gz"  # the site is at 1,000
    for record in pysam.FastxFile(str(around)):
        if "chr22:" in record.comment and len(parts) < 60:
            start = int(rng.integers(0, 800))
            parts.append(record.sequence[start : start + 1200])
            places.append(1000 - start)

    best = model.predict(parts)[:, 0].argmax(1)
    assert (abs(best - places) <= 100).mean() > 0.65

    ((_, chromosome),) = read_records(shared_data / "hg19/chr22_1-22000000.fa.gz")
    starts = rng.integers(16_500_000, 21_500_000, size=90)
    others = [chromosome[start : start + 2000] for start in starts]
    best = model.predict([x for x in others if "N" not in x])[:, 0].argmax(1)
    assert (abs(best - 1000) <= 25).mean() < 0.1


def test_the_model_of_measured_start_sites_is_as_good_as_its_figures_say(
    shared_data: Path, tmp_path: Path
) -> None:
    """On a part of the test windows: every active one, and some of the others."""
    home, name = shared_data / "ecoli", "ecoli-promoters-window"
    reference, table = tmp_path / "reference.fa.gz", tmp_path / "measured.csv"
    prepare_reference(next(home.glob("*.fna.gz")), reference)
    config = load_config(REPOSITORY / "workflow/config/ecoli.yaml")
    prepare_measured(config, home / MEASURED, reference, table)
    windows = pd.read_csv(table)
    windows = windows[windows["split"] == "test"]
    active = windows["label"] == 1
    some = pd.concat([windows[active], windows[~active][::8]])
    scores = bigbird_dna.load(name).predict(list(some["sequence"]))[:, 0]
    told = read_json(REPOSITORY / "resources/models" / name / METRICS)["test"]["model"]
    assert roc_auc_score(some["label"], scores) == pytest.approx(
        told["auroc"], abs=0.02
    )


def test_the_readme_s_calls_are_at_known_start_sites(run: Run, tmp_path: Path) -> None:
    example = REPOSITORY / "resources/examples/yeast_VII_20kb"
    words = ("call-promoters", "yeast-promoters", f"{example}.fa.gz")
    assert run(*words, "-o", tmp_path / "calls.parquet").code == 0
    calls = pd.read_parquet(tmp_path / "calls.parquet")
    known = pd.read_csv(f"{example}.promoters.tsv", sep="\t")
    for call in calls.itertuples():
        of_strand = known[known.strand == call.strand]
        assert (abs(of_strand.position - call.start) <= 20).any(), call
    assert 3 <= len(calls) <= len(known)


def test_moved_yeast_keeps_its_scores() -> None:
    """Of 4 annotated sites, each window of which begins elsewhere, with other tokens and bins."""
    model = load("yeast-promoters")
    example = REPOSITORY / "resources/examples/yeast_VII_20kb"
    ((_, sequence),) = read_records(Path(f"{example}.fa.gz"), ["yeast_VII_20kb"])
    sites = pd.read_csv(f"{example}.promoters.tsv", sep="\t")

    def scores(moved: int) -> list[float]:
        (probs,) = model.predict(sequence[moved:])
        return [
            probs["+-".index(site.strand), site.position - moved - 50 :][:101].max()
            for site in sites.itertuples()
        ]

    found = scores(0)
    for moved in (1, 5):
        assert scores(moved) == pytest.approx(found, abs=0.05)
