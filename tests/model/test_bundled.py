"""The models that come with the package: they score and embed as they are, as well as their figures say."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import bigbird_dna
from bigbird_dna.config import load_config
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.intervals import Interval
from bigbird_dna.genome.promoter_files import read_promoters
from bigbird_dna.genome.promoters import place
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.windows import inside, window_around
from bigbird_dna.model.content import METRICS
from bigbird_dna.model.directory import load_pretrained
from bigbird_dna.tasks.pretraining.held_out import HeldOut
from bigbird_dna.tasks.tokenize import tokenize
from bigbird_dna.tokens.store import TokenStore
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


def test_the_encoder_predicts_a_held_out_contig_as_its_figures_say(yeast: Path, tmp_path: Path) -> None:
    model = load_pretrained(ENCODER)
    metrics = json.loads((ENCODER / METRICS).read_text())
    config = load_config(CONFIG, ["tokens.passes=1", "genome.exclude=[Mito]"])
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
