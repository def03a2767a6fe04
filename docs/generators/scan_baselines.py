"""Scan contigs with a promoter baseline of a run, for `evaluate scan --scores position=FILE`.

`python -m docs.generators.scan_baselines results/yeast workflow/config/yeast.yaml position OUT.tsv --contig
VII` fits the baseline to the training windows of a negative set, as `train baseline-promoter` does, whose
option `--scan` is faster for `position` and `k-mer`. A network of other authors, such as `cnnprom`, is
trained on as many windows as the model. The table has the format of `score-promoters`.
"""

import argparse
import tempfile
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np

from bigbird_dna.baselines.promoters import promoter_regression
from bigbird_dna.calibration.maps import as_scored
from bigbird_dna.config import load_config
from bigbird_dna.data.predictions import PROMOTER_BASELINES
from bigbird_dna.genome.fasta import scan_fasta
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.papers.comparators.fitting import PromoterData
from bigbird_dna.papers.comparators.interface import (
    NETWORK_NAMES,
    ComparatorRequest,
    make_comparator,
)
from bigbird_dna.scoring.scan import promoter_inputs, score_inputs

Predict = Callable[[list[str]], np.ndarray]
"""From sequences of windows to their probabilities (n,) among as many negatives."""


def fitted_regression(data: PromoterData) -> Predict:
    """The baseline of `train baseline-promoter`."""
    rows = np.flatnonzero(data.data.rows["split"].to_numpy() == "train")
    settings = data.config.promoters.evaluation
    model = promoter_regression(data.name, settings.baseline_kmer, settings.seed)
    model.fit([data.sequences[row] for row in rows], data.data.labels[rows])
    return model.predict


def trained_network(data: PromoterData) -> Predict:
    """The network of `experiment run tables`."""
    with tempfile.TemporaryDirectory() as home:
        own = {"settings": data.settings, "checkpoints": Path(home), "device": "auto"}
        model = make_comparator(ComparatorRequest(data.name, **own, **data.request()))
        model.fit(data.learned, data.held_out)
        model.finish()
    return lambda sequences: model.predict(sequences)[:, 0]


def main() -> None:
    """Write the table of scores."""
    parser = argparse.ArgumentParser(prog="python -m docs.generators.scan_baselines")
    parser.add_argument(
        "results", type=Path, help="directory of the run, such as results/yeast"
    )
    parser.add_argument("config", type=Path, help="configuration of the run")
    parser.add_argument("baseline", choices=[*PROMOTER_BASELINES, *NETWORK_NAMES])
    parser.add_argument("output", type=Path)
    parser.add_argument("--contig", action="append", required=True)
    parser.add_argument("--negative-set", default="genomic")
    parser.add_argument("--stride", type=int, default=10)
    parser.add_argument(
        "--bases", type=int, help="only so many bases from the start of each contig"
    )
    parser.add_argument(
        "--prior",
        type=float,
        default=0.002,
        help="fraction of promoters among the windows",
    )
    given = parser.parse_args()
    config, genome = (
        load_config(given.config),
        Reference(given.results / "genome/reference.fa.gz"),
    )
    data = PromoterData(
        config, given.baseline, given.negative_set, given.results / "promoters", genome
    )
    fitted = trained_network if given.baseline in NETWORK_NAMES else fitted_regression
    probabilities = fitted(data)

    def predict(sequences: list[str]) -> np.ndarray:
        return as_scored(probabilities(sequences), 0.5, given.prior)

    upstream, downstream = config.promoters.windows.sides
    with (
        tempfile.TemporaryDirectory() as home,
        given.output.open("w", encoding="utf-8") as file,
    ):
        fasta = Path(home, "contigs.fa.gz")
        known = scan_fasta(genome.path)
        lengths = {
            name: min(known[name], given.bases or known[name]) for name in given.contig
        }
        write_fasta(
            fasta,
            [
                (name, genome.fetch(Interval(name, 0, lengths[name], "+")))
                for name in lengths
            ],
        )
        file.write("contig\tstart\tend\tname\tscore\tstrand\tnote\ttss\n")
        sizes = {
            "upstream": upstream,
            "downstream": downstream,
            "stride": given.stride,
        }
        inputs = promoter_inputs(fasta, scan_fasta(fasta), **sizes)
        for one in chain.from_iterable(score_inputs(inputs, predict)):
            score = "NA" if one.score is None else f"{one.score:.6g}"
            cells = (
                one.contig,
                one.start,
                one.end,
                one.name,
                score,
                one.strand,
                one.note or ".",
                one.tss,
            )
            file.write("\t".join(map(str, cells)) + "\n")


if __name__ == "__main__":
    main()
