"""A run in miniature: a random genome with promoters, its tokens and windows, made in a second."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bigbird_dna.config.reading import load_config
from bigbird_dna.data.promoter_windows import prepare_windows
from bigbird_dna.genome.promoters import write_loci
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.genome.sequence import Locus, reverse_complement
from bigbird_dna.tokens.encode import tokenize, train_tokenizer

MOTIF = "TATAAAGGCGCG"
UPSTREAM, DOWNSTREAM = 60, 40
CONTIGS = {"one": 30_000, "two": 12_000, "three": 12_000}

# A model of start sites at every base.
DENSE: dict[str, Any] = {
    "window": 160,
    "margin": 20,
    "smoothing_bp": 3,
    "bin": 10,
    "initial": "random",
    "dropout": 0.0,
    "kmers": 3,
    "channels": 16,
    "layers_before": 2,
    "training": {
        "steps": 30,
        "evaluate_every": 10,
        "checkpoint_minutes": 0,
        "precision": "float32",
        "optimizer": {"learning_rate": 5e-3, "warmup_steps": 5},
    },
}
SETTINGS: dict[str, Any] = {
    "genome": {"assembly": "demo", "valid": ["two"], "test": ["three"]},
    "tokens": {
        "vocabulary": 32,
        "corpus_megabases": 0.05,
        "genome_passes": 2,
        "max_start_offset": 500,
        "sentence_bases": [50, 100],
        "sentences_per_document": [5, 10],
    },
    "encoder": {
        "layers": 1,
        "hidden": 16,
        "heads": 2,
        "max_length": 128,
        "block_size": 8,
        "random_blocks": 1,
    },
    "pretraining": {
        "steps": 24,
        "batch_size": 4,
        "sequence_tokens": 96,
        "evaluate_every": 8,
        "checkpoint_minutes": 0,
        "evaluation_sequences": 8,
        "precision": "float32",
    },
    "promoters": {
        "dense": DENSE,
        "windows": {
            "upstream": UPSTREAM,
            "downstream": DOWNSTREAM,
            "negatives": 2,
            "min_tss_distance": 50,
        },
        "classifier": {"pooling": "mean"},
        "training": {
            "steps": 20,
            "batch_size": 16,
            "crop_jitter_bp": 4,
            "evaluate_every": 10,
            "checkpoint_minutes": 0,
            "precision": "float32",
        },
    },
}

# A whole run of the workflow in miniature, from the simulated genome to the report: two minutes of a core.
STEPS: dict[str, Any] = {
    "steps": 4,
    "batch_size": 4,
    "evaluate_every": 2,
    "checkpoint_minutes": 0,
    "optimizer": {"warmup_steps": 1},
}
WHOLE: dict[str, Any] = {
    "num_gpus": 2,
    "simulation": {"megabases": 0.15},
    "genome": {"assembly": "demo", "valid": ["demo5"], "test": ["demo6"]},
    "tokens": {**SETTINGS["tokens"], "vocabulary": 64, "genome_passes": 1},
    "encoder": {
        **SETTINGS["encoder"],
        "max_length": 512,
        "position_encoding": "rotary",
    },
    "pretraining": {
        **STEPS,
        "sequence_tokens": 96,
        "evaluation_sequences": 8,
    },
    "promoters": {
        "dense": {"window": 600, "margin": 100, "training": STEPS},
        "windows": {
            "upstream": UPSTREAM,
            "downstream": DOWNSTREAM,
            "min_tss_distance": 50,
        },
        "classifier": {"pooling": "mean"},
        "training": {**STEPS, "crop_jitter_bp": 4},
        "evaluation": {"baseline_kmer": 2},
    },
    "chromatin": {
        "num_gpus": 2,
        "data": {
            "tracks": "simulated",
            "window": 1000,
            "min_positives_train": 2,
            "negative_fraction": 0.5,
        },
        "model": {"pooling": "bin", "bin_layers": 1},
        "training": {**STEPS, "evaluation_bins": 20},
        "evaluation": {"baseline_kmer": 2},
    },
    "example_scan": {"max_megabases": 0.002},
}


def make(directory: Path) -> Path:
    """Fill `directory/results` up to the promoter windows and return the configuration's path."""
    results = directory / "results"
    path = directory / "run.yaml"
    path.write_text(yaml.safe_dump({"results": str(results), **SETTINGS}))
    config = load_config(path)
    paths = config.paths
    prepare_reference(
        _write_genome(directory / "genome.fa", paths.promoters), paths.reference
    )
    train_tokenizer(config, paths.reference, paths.tokenizer)
    tokenize(config, paths.reference, paths.tokenizer, paths.tokens)
    prepare_windows(config, paths.reference, paths.promoters, paths.windows)
    return path


def _write_genome(path: Path, promoters: Path) -> Path:
    """Random contigs with a motif that ends right before each TSS, on either strand; and the TSS."""
    rng = np.random.default_rng(5)
    loci, lines = [], []
    for contig, length in CONTIGS.items():
        sequence = "".join(rng.choice(list("ACGT"), length))
        for number, position in enumerate(range(300, length - 300, 300)):
            strand = "+" if rng.random() < 0.5 else "-"
            start = position - len(MOTIF) if strand == "+" else position + 1
            motif = MOTIF if strand == "+" else reverse_complement(MOTIF)
            sequence = sequence[:start] + motif + sequence[start + len(MOTIF) :]
            loci.append(Locus(contig, position, strand, f"{contig}_{number}"))  # type: ignore[arg-type]
        lines += [f">{contig}"] + [sequence[i : i + 60] for i in range(0, length, 60)]
    path.write_text("\n".join(lines) + "\n")
    write_loci(promoters, loci)
    return path
