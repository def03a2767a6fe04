"""A chromatin model as the commands that predict with it use it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bigbird_dna.cli.checks import check_at_least_one
from bigbird_dna.cli.device import batch_in_memory, use_device

if TYPE_CHECKING:  # slow to import: inside the function
    import numpy as np
    from numpy.typing import NDArray

    from bigbird_dna.genome.chromatin.tracks import Track


class Predictor(NamedTuple):
    """`predict` gives (N, K, T) probabilities of `tracks`, of the K bins in the middle of N windows.

    `window` is the size of a window in bp, `bin` that of a bin, `together` is K, `sha256` the checksum of the
    model's weights.
    """

    predict: "Callable[[Sequence[str]], NDArray[np.float32]]"
    window: int
    bin: int
    tracks: "Sequence[Track]"
    sha256: str
    together: int = 1

    def columns(self, pattern: str | None) -> list[int]:
        """Columns of the tracks that `pattern` chooses (see `select_tracks`), in order; None: all."""
        from bigbird_dna.genome.chromatin.tracks import select_tracks

        chosen = self.tracks if pattern is None else select_tracks(self.tracks, pattern)
        names = {track.name for track in chosen}
        return [column for column, track in enumerate(self.tracks) if track.name in names]


def open_predictor(
    model_dir: Path,
    *,
    both_strands: bool,
    batch_size: int,
    device: str,
    threads: int | None,
    middle: float = 0.0,
) -> Predictor:
    """Load a chromatin model; `ModelError` if the directory holds none.

    With `both_strands` a window's probabilities are the mean of it and its reverse complement. `middle` is
    the part of a window whose bins are predicted together; 0: the one bin in its middle.
    """
    from bigbird_dna.genome.chromatin.tracks import Track
    from bigbird_dna.model.directory import load_task
    from bigbird_dna.tasks.chromatin.inference import bins_together, predict_profiles

    check_at_least_one({"--batch-size": batch_size, "--threads": threads})
    use_device(device, threads)
    model = load_task(model_dir, "chromatin")

    def predict(sequences: Sequence[str]) -> "NDArray[np.float32]":
        with batch_in_memory(batch_size):
            return predict_profiles(
                model,
                sequences,
                middle=middle,
                both_strands=both_strands,
                batch_size=batch_size,
                device=device,
            )

    tracks = [Track(track["track"], track["group"]) for track in model.settings["tracks"]]
    window, size = int(model.settings["window"]), int(model.settings["bin"])
    together = bins_together(model, middle)
    return Predictor(predict, window, size, tracks, model.sha256, together)
