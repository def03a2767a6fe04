"""Peak memory of a scan of a long FASTA above what is in use before it; run by hand.

    python tests/benchmarks/score_memory.py [MODEL_DIR] [--megabases 100] [--stride 2000] [--format tsv]

Writes a random FASTA of one record, scans it with the model (or, without one, with a predictor that counts
letters in windows of 8,000 bp), and fails if the scan took more than 1 GB.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bigbird_dna.genome.fasta import scan_fasta
from bigbird_dna.scoring.formats import OutputHeader
from bigbird_dna.scoring.promoters import WRITERS
from bigbird_dna.scoring.scan import Predictor, scan_promoters

LIMIT = 1000  # MB
LINE = 60


def write_random_fasta(path: Path, megabases: int) -> None:
    generator = np.random.default_rng(1)
    with path.open("wb") as stream:
        stream.write(b">random\n")
        for _ in range(megabases):
            letters = generator.choice(np.frombuffer(b"ACGTacgt", np.uint8), 1_000_020)
            lines = np.full((len(letters) // LINE, LINE + 1), ord("\n"), np.uint8)
            lines[:, :LINE] = letters.reshape(-1, LINE)
            stream.write(lines.tobytes())


def gc_content(sequences: Sequence[str]) -> np.ndarray:
    return np.array([(s.count("G") + s.count("C")) / len(s) for s in sequences], dtype=np.float32)


def predictor(model_dir: Path | None) -> tuple[Predictor, int, int]:
    """The predictor and the bp before and after the TSS."""
    if model_dir is None:
        return gc_content, 5000, 3000
    from bigbird_dna.model.directory import load_promoter_model

    model = load_promoter_model(model_dir)
    # A batch belongs to the model's own share.
    model.window_probabilities(["A" * model.settings.window] * 32)
    return model.window_probabilities, model.settings.upstream, model.settings.downstream


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model_dir", nargs="?", type=Path)
    parser.add_argument("--megabases", type=int, default=100)
    parser.add_argument("--stride", type=int, default=2000)
    parser.add_argument("--format", choices=WRITERS, default="tsv")
    options = parser.parse_args()
    predict, upstream, downstream = predictor(options.model_dir)
    with tempfile.TemporaryDirectory() as directory:
        fasta = Path(directory, "random.fa")
        write_random_fasta(fasta, options.megabases)
        before, began = peak_megabytes(), time.perf_counter()
        contigs = scan_fasta(fasta)
        windows = scan_promoters(
            fasta, contigs, window=upstream + downstream, stride=options.stride, predict=predict
        )
        sizes = [upstream, downstream, options.stride]
        extra = {"sizes": sizes, "strands": ["+", "-"], "places": None}
        info = OutputHeader({}, contigs, extra=extra)
        WRITERS[options.format](Path(directory, "scores"), windows, info)
        took = peak_megabytes() - before
        seconds = time.perf_counter() - began
    print(
        f"{sum(contigs.values()) / 1e6:.1f} Mb in {seconds:.0f} s: peak {took:.0f} MB above {before:.0f} MB"
    )
    if took > LIMIT:
        sys.exit(f"more than {LIMIT} MB")


if __name__ == "__main__":
    main()
