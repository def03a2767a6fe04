"""`bigbird_dna.load`."""

from pathlib import Path

from bigbird_dna.api.models import ChromatinModel, Model, PromoterModel
from bigbird_dna.errors import UsageError, shortened
from bigbird_dna.model import directory
from bigbird_dna.model.longer_inputs import Extension


def load(path: Path | str, *, positions: int | None = None, extend: Extension = "tile") -> Model:
    """Load a model directory: a `PromoterModel`, a `ChromatinModel`, or a `Model` of another task.

    The model is in evaluation mode, on the CPU. Nothing of the directory is run.

    Parameters
    ----------
    path
        The directory, as training, `import-hf` or `model extend-context` writes it; or the name of a model
        that is bundled with the package, where there is no directory of that name.
    positions
        Longest input in tokens, if that is to be more than the model was made for; None: as it was saved.
    extend
        How positions are added: "tile" or "interpolate" for learnt positions, "interpolate" or "ntk" for
        rotary ones.

    Raises
    ------
    ModelError
        `path` is not a model directory, or one of its files is missing, damaged or changed since it was
        saved; the message says which. Or it names a published model that must be fetched first, or its
        positions can't be extended as asked.

    Examples
    --------
    >>> model = bigbird_dna.load("results/demo/models/promoter-genomic")
    >>> model.predict("ACGT" * 100)
    """
    if not isinstance(path, str | Path):
        raise UsageError(f"path {shortened(repr(path))}: give the name of a model directory")
    found = directory.load(path, positions=positions, extend=extend)
    kinds: dict[str, type[Model]] = {"promoter": PromoterModel, "chromatin": ChromatinModel}
    kind = kinds.get(found.task, Model)
    model = kind(found.network, found.tokenizer, found.config, found.settings, found.path)
    if "sha256" in vars(found):
        vars(model)["sha256"] = found.sha256  # known from loading: not computed again
    return model
