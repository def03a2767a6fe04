"""The k-mer regressions of chromatin tracks as a model, so that `score-variants` also predicts with them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from bigbird_dna.baselines.dyads import TrackDyads, TrackWords
from bigbird_dna.baselines.kmers import KmerTracks
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.disk.arrays import open_npz
from bigbird_dna.disk.atomic import atomic_path, checksum, reading
from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.track import Track
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack

_FITTED = ("mean", "scale", "weight", "bias")  # of `KmerTracks`


@dataclass(frozen=True, repr=False)
class KmerModel(LoadedChromatinModel):
    """Regressions of tracks on the words of a window. It has no network. `path` is its file, see `write`."""

    words: TrackWords = field(default_factory=lambda: TrackWords(5, 0, ()))

    @classmethod
    def of(
        cls, words: TrackWords, tracks: Sequence[Track], path: Path | None = None
    ) -> Self:
        """Return the model of fitted regressions."""
        named = tuple(
            NamedTrack(track=track.name, group=track.group) for track in tracks
        )
        settings = ChromatinSettings(
            window=max(words.sizes),
            bin=words.sizes[0],
            pooling="bin",
            bin_layers=0,
            members=1,
            tracks=named,
        )
        # No command that accepts this model uses the network or its tokenizer.
        return cls(
            cast(Any, nn.Module()),
            cast(Any, None),
            EncoderConfig(),
            settings,
            path,
            words,
        )

    @cached_property
    def sha256(self) -> str:
        """Checksum of the file, "" without one."""
        return checksum(self.path) if self.path else ""

    def window_probabilities(
        self, windows: Sequence[str], **_: Any
    ) -> npt.NDArray[np.float32]:
        """Probabilities (N, 1, T) of the central bin; they are the same on both strands."""
        return self.words.predict(windows)[:, None]

    def write(self, path: Path) -> None:
        """Write the model as `.npz`, for `read_kmer_model`."""
        names = [[track.name, track.group] for track in self.tracks]
        words = self.words
        arrays = {name: getattr(words.kmers, name).numpy() for name in _FITTED}
        for name, value in vars(words.dyads).items():
            arrays[f"dyads_{name}"] = value
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            np.savez(stream, tracks=names, sizes=words.sizes, kmer=words.k, **arrays)


def read_kmer_model(path: Path) -> KmerModel:
    """Read a file of `KmerModel.write`; `DataError` if it is another file, or damaged."""
    with (
        reading(path, "damaged, or not a model of train baseline chromatin", Exception),
        open_npz(path) as file,
    ):
        arrays = {name: file[name] for name in file.files}
        kmers = KmerTracks()
        for name in _FITTED:
            setattr(kmers, name, torch.from_numpy(arrays[name]))
        dyads = TrackDyads(*(arrays[f"dyads_{one.name}"] for one in fields(TrackDyads)))
        tracks = [Track(name, group) for name, group in arrays["tracks"].tolist()]
        each, sizes = dyads.words.shape[1], arrays["sizes"].tolist()
        words = TrackWords(int(arrays["kmer"]), each, sizes, kmers, dyads)
        model = KmerModel.of(words, tracks, path)
        predicted = model.window_probabilities(["A" * model.settings.window])
        if predicted.shape != (1, 1, len(tracks)) or not np.isfinite(predicted).all():
            raise DataError(f"{path}: the regressions do not match the tracks")
    return model
