"""The experiment on bytes: one causal model of images or text, and its table of one row."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from bigbird_dna.config import Config
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import number, read_object, write_tsv
from bigbird_dna.papers.experiments.experiment import Arm, ArmJob, Experiment, require

RESULT = "result.json"
_BITS = ("bits_per_byte", "by_frequency", "by_frequency_after_a_byte")


class ByteLm(Experiment):
    """A causal model of the section `density`."""

    name: ClassVar[str] = "byte_lm"
    files: ClassVar[Sequence[str]] = ("byte_lm.tsv",)

    def check(self, run: Config) -> None:
        require(run.byte_lm, "density: is missing: it names format and files")

    def arms(self, run: Config) -> Sequence[Arm]:
        assert run.byte_lm is not None
        return [Arm(run.byte_lm.encoder.attention, "bytes", (run.byte_lm.training.seed,))]

    def compare(
        self, run: Config, jobs: Sequence[ArmJob], output: Path, *, benchmarks: Path | None, device: str
    ) -> list[str]:
        import pandas as pd

        path = jobs[0].model / RESULT
        result = read_object(path)
        bits, simple, after = (number(result, key, path) for key in _BITS)
        with into_directory(output, [jobs[0].model]) as files:
            write_tsv(files / self.files[0], pd.DataFrame([result]))
        return [f"{bits:.4f} bits per byte; by frequency {simple:.4f}, after a byte {after:.4f}"]
