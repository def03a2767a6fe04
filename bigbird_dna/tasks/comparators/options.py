"""What is asked of a comparator, and what is written beside its predictions."""

from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from shutil import copyfile
from typing import Any

from bigbird_dna.baselines.comparators.interface import Comparator
from bigbird_dna.baselines.comparators.names import MOTIFS, NETWORK_NAMES, PROBE, WEIGHTS, check_name
from bigbird_dna.baselines.comparators.networks import NetworkSettings
from bigbird_dna.checks import check_at_least_one
from bigbird_dna.disk.atomic import write_json
from bigbird_dna.errors import UsageError

DESCRIPTION = "comparator.json"


@dataclass(frozen=True)
class Options:
    """What a user may say of a comparator; None: its default."""

    seed: int | None = None
    steps: int | None = None  # of networks, as the next two
    step_windows: int | None = None
    learning_rate: float | None = None
    motifs: Path | None = None  # of the scan with known motifs, as the next
    taxon: str | None = None
    model: Path | None = None  # that a probe reads, as the next
    weights: str | None = None

    def check(self, name: str) -> None:
        """`UsageError` where no comparator has the name, or options don't fit it or aren't possible."""
        check_name(name)
        networks = {
            "--steps": self.steps,
            "--training-batch-size": self.step_windows,
            "--learning-rate": self.learning_rate,
        }
        scans = {"--motifs": self.motifs, "--taxon": self.taxon}
        probes = {"--model": self.model, "--weights": self.weights}
        for options, fitting, whose in (
            (networks, name in NETWORK_NAMES, "networks"),
            (scans, name == MOTIFS, f"the comparator {MOTIFS}"),
            (probes, name == PROBE, f"the comparator {PROBE}"),
        ):
            for option, value in options.items():
                if value is not None and not fitting:
                    raise UsageError(f"{option} {value}: is an option of {whose}, which {name} is not")
        if name == PROBE and self.model is None:
            raise UsageError(f"{name}: reads a language model, name its directory with --model")
        if self.weights not in (None, *WEIGHTS):
            raise UsageError(f"--weights {self.weights!r}: choose {' or '.join(WEIGHTS)}")
        check_at_least_one({"steps": self.steps, "step-windows": self.step_windows})
        if self.learning_rate is not None and not 0 < self.learning_rate <= 1:
            raise UsageError(f"--learning-rate {self.learning_rate:g}: must be above 0 and at most 1")
        if self.motifs is not None and self.taxon is not None:
            raise UsageError(f"--taxon {self.taxon}: chooses among JASPAR's matrices, not those of --motifs")

    def settings(self, seed: int, *, directed: bool) -> NetworkSettings:
        """How a network is trained; `seed` is the configuration's."""
        settings = NetworkSettings(
            seed=seed if self.seed is None else self.seed, both_strands=not directed, balanced=directed
        )
        given: dict[str, Any] = {
            "steps": self.steps,
            "batch_size": self.step_windows,
            "learning_rate": self.learning_rate,
        }
        return replace(settings, **{name: value for name, value in given.items() if value is not None})


def write_description(
    directory: Path, name: str, comparator: Comparator, settings: NetworkSettings, **values: Any
) -> None:
    """Write `comparator.json`, and the comparator's own files, into a directory."""
    trained = asdict(settings) if name in NETWORK_NAMES else {"seed": settings.seed}
    description = {
        "comparator": name,
        "version": version("bigbird-dna"),
        **values,
        "settings": trained,
        "chosen": comparator.chosen(),
    }
    write_json(directory / DESCRIPTION, description)
    for file, path in comparator.files().items():
        copyfile(path, directory / file)
