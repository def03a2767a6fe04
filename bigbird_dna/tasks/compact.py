"""A model directory of half the size: its matrices are stored in float16."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bigbird_dna.calibration.stored import FILE as CALIBRATION
from bigbird_dna.directories import check_directory
from bigbird_dna.errors import UsageError
from bigbird_dna.model import checksums
from bigbird_dna.model.calibrated import calibration_file, calibration_of
from bigbird_dna.model.catalogue import find_model
from bigbird_dna.model.chromatin_model import ChromatinModel
from bigbird_dna.model.content import CARD, METRICS, list_files
from bigbird_dna.model.directory import CONFIG, WEIGHTS, load, save
from bigbird_dna.model.json_files import read_mapping
from bigbird_dna.model.model import Model
from bigbird_dna.model.promoter_model import PromoterModel
from bigbird_dna.model.weights import fits_half, stored_tensors
from bigbird_dna.tasks.provenance import read_provenance

KEY = "compacted_from"
SEQUENCES, LONGEST = 16, 1000  # bp, of a sequence that the change is measured on


class Change(NamedTuple):
    """The largest change of a model's outputs."""

    outputs: str  # "probabilities" or "embeddings"
    largest: float
    typical: float  # root mean square of the outputs themselves

    def __str__(self) -> str:
        size = f"{self.largest:.2g} (their root mean square is {self.typical:.2g})"
        return f"{self.outputs} change by at most {size}"


class Compacted(NamedTuple):
    """What became of a model; no change is known where its inputs aren't DNA."""

    half: int  # tensors in float16
    tensors: int
    change: Change | None


def compact_model(path: Path, output: Path) -> Compacted:
    """Write the model of `path` to `output` with its matrices in float16, where they lose little by it.

    Other files stay as they are, but for a model card, which would describe another file of weights, and for
    `calibration.json`, which says the same of the new weights.
    `provenance.json` says also which model it was, and how much the outputs change on random sequences.

    Raises
    ------
    UsageError
        `output` is the model itself or can't be written, or there is nothing to store in float16.
    ModelError
        As of `bigbird_dna.model.directory.load`.
    """
    path = find_model(path)
    check_directory(output, [path])
    model = load(path)
    origin, metrics = read_provenance(path), {}
    if (path / METRICS).is_file():
        metrics = read_mapping(path / METRICS)
    calibration = calibration_of(model) if calibration_file(model) else None
    weights = model.network.state_dict()
    half = {name for name, tensor in weights.items() if fits_half(tensor)}
    stored = stored_tensors(path / WEIGHTS)
    if not any(stored[name].type == "F32" for name in half):
        raise UsageError(f"{path}: nothing is left to store in float16")
    before = _outputs(model)
    _round(model, half)
    change = _change(model, before)
    provenance: dict[str, Any] = {name: value for name, value in origin.items() if name != checksums.KEY}
    provenance[KEY] = {
        "model": path.name,
        "sha256": model.sha256,
        "float16_tensors": len(half),
        "tensors": len(weights),
        "change": change and {**change._asdict(), "sequences": SEQUENCES},
    }
    written = {CONFIG, WEIGHTS, model.tokenizer.file_name, checksums.RECORD, METRICS, CARD, CALIBRATION}
    extra = {name: path / name for name in list_files(path) if name not in written}
    save(output, model, provenance, metrics, extra, half=half, calibration=calibration)
    return Compacted(len(half), len(weights), change)


def _round(model: Model, half: set[str]) -> None:
    for name, tensor in model.network.state_dict().items():
        if name in half:
            tensor.copy_(tensor.half())


def _change(model: Model, before: npt.NDArray[np.float64] | None) -> Change | None:
    after = _outputs(model)
    if before is None or after is None:
        return None
    outputs = "probabilities" if isinstance(model, PromoterModel | ChromatinModel) else "embeddings"
    return Change(outputs, float(np.abs(after - before).max()), float(np.sqrt(np.mean(before**2))))


def _outputs(model: Model) -> npt.NDArray[np.float64] | None:
    """What a model answers to random sequences, the same ones every time."""
    if not model.tokenizer.is_dna:
        return None
    length, rng = LONGEST, np.random.default_rng(0)
    if isinstance(model, PromoterModel | ChromatinModel):
        length = model.settings.window
    sequences = ["".join(rng.choice(list("ACGT"), length)) for _ in range(SEQUENCES)]
    if isinstance(model, PromoterModel | ChromatinModel):
        return np.asarray(model.predict(sequences, device="cpu"), np.float64)
    return np.asarray(model.embed(sequences, device="cpu"), np.float64)
