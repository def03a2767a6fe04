"""A causal model on a source whose entropy is known: what it needs for a base, and what it writes itself."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from bigbird_dna.baselines.language import BASES_LEFT, TOKENS_LEFT, UNIFORM, UNIGRAM
from bigbird_dna.config import PretrainingConfig, parse_config
from bigbird_dna.data.bits_per_base import MODEL, SPLIT
from bigbird_dna.errors import DataError
from bigbird_dna.genome.fasta import stream_fasta
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.genome.sequence import base_codes
from bigbird_dna.metrics.resampling import bits_per_base
from bigbird_dna.pretraining import baselines as rivals
from bigbird_dna.pretraining import evaluation
from bigbird_dna.pretraining.task import PretrainingTask
from bigbird_dna.reporting.samples import divergence, spectrum
from bigbird_dna.reporting.summary import language_rows, pretraining_rows
from bigbird_dna.scoring.generation import generate_samples
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.encode import tokenize
from bigbird_dna.training.distributed import World
from bigbird_dna.training.task import train
from tests.baselines.sources import Source
from tests.golden.messages import fails

TOKENS = 64  # of an input
SOURCE = Source(2, seed=1, concentration=1.0)


def exact_spectrum(k: int) -> np.ndarray:
    """How often each run of k bases stands in endless sequence of the source, in a thousand million."""
    shares = SOURCE.states  # of runs of two
    while len(shares) < 4**k:
        shares = (shares[:, None] * SOURCE.table[np.arange(len(shares)) % len(SOURCE.table)]).reshape(-1)
    while len(shares) > 4**k:
        shares = shares.reshape(4, -1).sum(0)
    return np.rint(1e9 * shares).astype(np.int64)


class Trained(NamedTuple):
    """A model's directory and its token stores."""

    model: Path
    tokens: Path


def written(home: Path, contigs: dict[str, int]) -> Path:
    """Sequence of the source as an indexed reference."""
    with (home / "genome.fa").open("w") as stream:
        for seed, (contig, size) in enumerate(contigs.items()):
            stream.write(f">{contig}\n{''.join('ACGT'[code] for code in SOURCE.sample(size, seed))}\n")
    prepare_reference(home / "genome.fa", home / "genome.fa.gz")
    return home / "genome.fa.gz"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A causal model of pieces of one to three bases."""
    home = tmp_path_factory.mktemp("source")
    genome = written(home, {"train": 400_000, "valid": 60_000, "test": 120_000})
    (home / "tokens").mkdir()
    pieces = home / "tokens/tokenizer.model"
    texts = ["".join("ACGT"[code] for code in SOURCE.sample(400, seed)) for seed in range(50)]
    DnaTokenizer.train(texts, pieces, 24, 3)
    config = parse_config(
        {
            "genome": {"assembly": "demo", "valid": ["valid"], "test": ["test"]},
            "tokens": {
                "genome_passes": 1,
                "max_start_offset": 0,
                "sentences_per_document": [5, 10],
                "strands": "forward",
            },
            "encoder": {
                **{"layers": 2, "hidden": 32, "heads": 2, "positions": TOKENS, "position": "rotary"},
                **{"attention": "full", "causal": True, "dropout": 0.0},
            },
            "pretraining": {
                **{"batch_size": 32, "sequence_tokens": TOKENS, "evaluation_sequences": 32, "steps": 200},
                **{"evaluate_every": 10_000, "checkpoint_every": 10_000, "precision": "float32"},
                "optimizer": {"learning_rate": 0.01, "warmup_steps": 30},
            },
        }
    )
    tokenize(config, genome, pieces, home / "tokens")
    alone = World(0, 1, torch.device("cpu"))
    task = PretrainingTask(config, home / "tokens", pieces)
    metrics = train(task, home / "model", home / "checkpoints", alone)
    assert {*metrics} >= {"bits_per_base", "next_token_accuracy"} and "masked_accuracy" not in metrics
    return Trained(home / "model", home / "tokens")


def test_it_needs_the_bits_that_the_source_has_and_no_fewer(trained: Trained, tmp_path: Path) -> None:
    given = []
    with pytest.MonkeyPatch.context() as patch:
        table_of = evaluation.language_model_table
        patch.setattr(
            evaluation,
            "language_model_table",
            lambda *values, **named: given.append(values) or table_of(*values, **named),
        )
        fit = partial(rivals.fit_left_baselines, base_order=SOURCE.order + 2)
        patch.setattr(rivals, "fit_left_baselines", fit)
        settings = PretrainingConfig(sequence_tokens=TOKENS, ngram_order=4)
        rivals.fit_rivals(
            settings, trained.tokens, trained.tokens / "tokenizer.model", tmp_path / "left.npz", causal=True
        )
        table = evaluation.evaluate_pretraining(
            trained.model,
            trained.tokens,
            tmp_path / "bits.tsv",
            sequence_tokens=TOKENS,
            baselines=tmp_path / "left.npz",
        )
    with fails(DataError):
        rivals.read_rivals(tmp_path / "left.npz", {})
    assert {*table["predictor"]} == {MODEL, UNIFORM, UNIGRAM, TOKENS_LEFT, BASES_LEFT}
    rows = table[table[SPLIT] == "test"].set_index("predictor")["bits_per_base"]
    bits, bases, blocks, _ = given[-1]  # of the test contig
    assert bases.sum() > 20_000 and bases.max() == 3 and bases.min() == 1
    known = np.full(len(bases), SOURCE.entropy) * bases
    for name in (MODEL, TOKENS_LEFT, BASES_LEFT):
        assert rows[name] == pytest.approx(SOURCE.entropy, rel=0.02), name
        rates = bits_per_base({"source": known, "other": bits[name]}, bases, blocks, "source")
        assert rates["other"].difference.low < 0, name  # the source's minus its: not surely above 0
    summed = [row.figure for row in language_rows(tmp_path / "bits.tsv")]
    assert len(summed) == 3 and summed[0] == "bits per base, model" and summed[2] == "  model minus it"
    assert "next tokens right" in [row.figure for row in pretraining_rows(trained.model / "metrics.json")]
    assert rows[UNIGRAM] > 1.02 * SOURCE.entropy and rows[UNIFORM] == 2


def test_what_it_writes_has_the_runs_of_bases_of_the_source(trained: Trained, tmp_path: Path) -> None:
    """16 samples of 3 kb: runs of up to four bases are nearly as frequent as they are in the source."""
    out = tmp_path / "samples.fa"
    assert generate_samples(trained.model, out, number=16, length=3000, device="cpu", threads=1) == 16
    records = [*stream_fasta(out)]
    assert all(len(chunk.sequence) == 3000 and "N" not in chunk.sequence for chunk in records)
    samples = [base_codes(chunk.sequence) for chunk in records]
    true = [SOURCE.sample(3000, seed) for seed in range(100, 116)]
    uniform = [np.random.default_rng(1).integers(0, 4, 48_000).astype(np.uint8)]
    for k in range(1, 5):
        known = exact_spectrum(k)
        apart, least, most = (divergence(spectrum(own, k), known) for own in (samples, true, uniform))
        assert apart < 2e-4 + 4 * least and (k == 1 or apart < 0.02 * most), k
