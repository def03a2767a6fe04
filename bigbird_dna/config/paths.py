"""Paths of a run's files, for defaults of commands and rules of the workflow."""

from dataclasses import dataclass
from pathlib import Path


class _Place:
    """A file or directory with the same relative path in every run."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __get__(self, run: "RunPaths | None", owner: type | None = None) -> Path:
        if run is None:
            raise AttributeError(
                f"{self.place} is a path of a run: use RunPaths(results)"
            )
        return run.results / self.place


def baseline_file(baseline: str) -> str:
    """File of the predictions of a promoter baseline in the directory of its negative set."""
    return f"{baseline.replace('-', '')}.parquet"


def scan_file(baseline: str) -> str:
    """File of the scores of a promoter baseline along contigs, in the same directory."""
    return f"{baseline.replace('-', '')}.scan.tsv"


@dataclass(frozen=True)
class RunPaths:
    """Paths of a run's files under its directory `results`.

    Arguments of methods are parts of file names; Snakemake wildcards are allowed.
    """

    results: Path

    # Files of the simulation, and files made from them or from downloads.
    simulated_reference = _Place("simulated/genome.fa.gz")
    simulated_promoters = _Place("simulated/promoters.sga")
    simulated_tracks = _Place("simulated/tracks.tsv")
    simulated_peaks = _Place("simulated/peaks")
    simulated_variants = _Place("simulated/variants.vcf.gz")
    pieces = _Place("pieces")
    reference = _Place("genome/reference.fa.gz")
    promoters = _Place("genome/promoters.tsv")
    promoter_counts = _Place("genome/promoters.json")
    test_sequence = _Place("genome/test.fa.gz")

    tokens = _Place("tokens")
    tokenizer = _Place("tokens/tokenizer.model")
    token_statistics = _Place("tokens/statistics.json")
    pretrained = _Place("models/pretrained")
    pretraining_bits = _Place("pretraining/bits_per_base.tsv")

    windows = _Place("promoters")
    sequence_model = _Place("models/sequences")
    promoter_calls = _Place("scores/calls.bed")

    trained_start_sites = _Place("models/start-sites-trained")
    start_sites_model = _Place("models/start-sites")

    chromatin_data = _Place("chromatin/data")
    combined_chromatin = _Place("models/chromatin")
    calibrated_chromatin = _Place("models/chromatin-calibrated")
    chromatin_regressions = _Place("models/chromatin-regressions")
    chromatin_kmers = _Place("chromatin/kmers.npy")
    chromatin_dyads = _Place("chromatin/dyads.npy")
    held_out_bins = _Place("chromatin/held-out")

    report = _Place("report")
    report_page = _Place("report.html")
    checkpoints = _Place("checkpoints")

    def download(self, file: str) -> Path:
        """A downloaded public file, by name."""
        return self.results / "downloads" / file

    def token_store(self, split: str) -> Path:
        """Token store of a split."""
        return self.tokens / split

    def promoter_model(self, name: str) -> Path:
        """Model directory of a negative set, or of a control."""
        return self.results / f"models/promoter-{name}"

    def promoter_baselines(self, negative_set: str) -> Path:
        """Directory of the promoter baselines of a negative set."""
        return self.windows / f"baselines-{negative_set}"

    def promoter_baseline(self, baseline: str, negative_set: str) -> Path:
        """Predictions of held-out windows by a baseline of `PROMOTER_BASELINES`."""
        return self.promoter_baselines(negative_set) / baseline_file(baseline)

    @property
    def promoter_scores(self) -> Path:
        """Output of the example scan by score-promoters."""
        return self.results / "scores/promoters.tsv"

    def chromatin_model(self, window: int | str, member: int | str) -> Path:
        """Model directory by window length in bp and index in the ensemble."""
        return self.results / f"models/chromatin-{window}-{member}"

    def chromatin_predictions(self, window: int | str, part: str = "") -> Path:
        """Probabilities of the test bins, predicted by models of a window length; `part` "-network": by the
        networks of ensembles alone."""
        return self.results / f"chromatin/predictions-{window}{part}.npy"

    def scored_variants(self, kind: str = "") -> Path:
        """Variants scored by the model; `kind` "-regressions": by its regressions alone."""
        return self.results / f"chromatin/variants{kind}.vcf.gz"

    def experiment(self, name: str) -> Path:
        """Directory of an experiment: `ARM/SEED` per job, and data sets of the experiment in `data`."""
        return self.results / f"experiments/{name}"

    def stage(self, stage: str) -> Path:
        """File with the configuration sections that a stage reads."""
        return self.results / f"config/{stage}.yaml"

    def log(self, name: str) -> Path:
        """Log file of a job."""
        return self.results / f"logs/{name}.log"

    def benchmark(self, name: str) -> Path:
        """Benchmark file of a job: time and memory."""
        return self.results / f"benchmarks/{name}.tsv"
