"""A chromatin model as the commands that predict with it use it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bigbird_dna.errors import UsageError

if TYPE_CHECKING:  # slow to import: inside the function
    import numpy as np
    from numpy.typing import NDArray

    from bigbird_dna.genome.tracks import Track


class Predictor(NamedTuple):
    """`predict` gives (N, T) probabilities of `tracks` for the middle bin of N windows of `window` bp.

    `bin` is the size of the bin in bp, `sha256` the checksum of the model's weights.
    """

    predict: "Callable[[Sequence[str]], NDArray[np.float32]]"
    window: int
    bin: int
    tracks: "Sequence[Track]"
    sha256: str


def open_predictor(
    model_dir: Path, *, both_strands: bool, batch_size: int, device: str, threads: int | None
) -> Predictor:
    """Load a chromatin model; `ModelError` if the directory holds none.

    With `both_strands` a window's probabilities are the mean of it and its reverse complement.
    """
    import torch

    from bigbird_dna.genome.tracks import Track
    from bigbird_dna.model.checkpoint import load_task
    from bigbird_dna.tasks.profile_inference import predict_profiles
    from bigbird_dna.training.distributed import choose_device

    for option, value in {"--batch-size": batch_size, "--threads": threads}.items():
        if value is not None and value < 1:
            raise UsageError(f"{option} {value}: must be at least 1")
    choose_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    model = load_task(model_dir, "chromatin")

    def predict(sequences: Sequence[str]) -> "NDArray[np.float32]":
        try:
            return predict_profiles(
                model,
                sequences,
                both_strands=both_strands,
                batch_size=batch_size,
                device=device,
            )
        except torch.OutOfMemoryError:
            raise UsageError(
                f"--batch-size {batch_size}: the device's memory is too small for it"
            ) from None

    tracks = [Track(track["track"], track["group"]) for track in model.settings["tracks"]]
    window, size = int(model.settings["window"]), int(model.settings["bin"])
    return Predictor(predict, window, size, tracks, model.sha256)
