"""What decides a model's predictions."""

from pathlib import Path

from bigbird_dna.calibration.stored import FILE as CALIBRATION
from bigbird_dna.errors import UsageError
from bigbird_dna.model.directory import CONFIG, WEIGHTS
from bigbird_dna.model.model import Model
from bigbird_dna.tokens.text import TOKENIZER_FILES


def model_files(model: Model, calibrated: bool = False) -> list[Path]:
    """The files of a model's directory that decide what it predicts, or its calibrated probabilities.

    Raises
    ------
    UsageError
        The model was never saved.
    """
    if model.path is None:
        raise UsageError("a piece of a job needs a model that was saved, so that others can use the same")
    names = (CONFIG, WEIGHTS, *TOKENIZER_FILES, *([CALIBRATION] if calibrated else []))
    files = (model.path / name for name in names)
    return [path for path in files if path.is_file()]
