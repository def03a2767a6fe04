"""Linear probes on promoters: what a frozen encoder's layers tell without fine-tuning."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from bigbird_dna.baselines.kmers import KmerLogistic, fit_probe
from bigbird_dna.config import Config
from bigbird_dna.console import log, progress
from bigbird_dna.data.promoter_windows import read_origin, read_windows, training_windows, window_sequences
from bigbird_dna.disk.atomic import full_disk_told, scratch_directory
from bigbird_dna.errors import DataError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.model.batching import Ids, window_rows
from bigbird_dna.model.directory import load
from bigbird_dna.model.embeddings import layer_means
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.inference import choose_device
from bigbird_dna.reporting.study.models import PRETRAINED, RANDOM
from bigbird_dna.reporting.study.probes import KMERS, Probed, probe_report

# Axes: N windows, D hidden width.

ROWS_AT_ONCE = 4096
LEARNT_FROM = 8000
"""Training windows, at most: more tell a regression on some hundred numbers little, and take minutes."""
SPLITS = ("train", "valid", "test")


class _Windows(NamedTuple):
    """The windows that are learnt from, chosen on and judged, one after the other."""

    sequences: list[str]
    labels: npt.NDArray[np.uint8]  # (N,)
    split: npt.NDArray[np.intp]  # (N,) number among `SPLITS`

    def of(self, number: int) -> npt.NDArray[np.intp]:
        """The rows of a split."""
        return np.flatnonzero(self.split == number)


def probe_promoters(
    config: Config,
    negative_set: str,
    *,
    windows: Path,
    reference: Reference,
    model: Path,
    random_seed: int,
    output: Path,
    batch_size: int = 32,
    device: str = "auto",
) -> pd.DataFrame:
    """Probe every layer of a model's encoder and of fresh weights; write `probes.tsv` and `probes.svg`.

    A probe is a logistic regression on the mean over a window's tokens. It learns from the training windows,
    of `promoters.training.examples` of them `LEARNT_FROM` at most, chooses its penalty on the validation
    windows and is judged on the test windows, beside a regression on k-mers. Vectors lie in temporary files,
    a layer of them is in memory at a time.

    Raises
    ------
    DataError
        A split has windows of one class only.
    ModelError
        The model has several encoders, or no tokenizer of DNA.
    """
    given, settings = load(model), config.promoters
    own = given.one_encoder("encoder to probe")
    place = choose_device(device)
    if origin := read_origin(windows):
        settings = settings.with_sides(origin.upstream, origin.downstream, str(windows))
    upstream, downstream = settings.windows.sides
    chosen = _windows(config, negative_set, windows, reference)
    positions, anchor = given.config.positions, upstream / (upstream + downstream)
    rows = window_rows(given.tokenizer, chosen.sequences, positions, anchor)
    torch.manual_seed(random_seed)
    networks = {PRETRAINED: own, RANDOM: Encoder(given.config)}
    found: list[Probed] = []
    for name, encoder in networks.items():
        network = encoder.to(place).eval()
        found += _probed(name, network, rows, chosen, given.tokenizer.pad_id, batch_size, place)
    found.append(_kmers(config, chosen))
    return probe_report(chosen.labels[chosen.of(2)], found, output)


def _windows(config: Config, negative_set: str, windows: Path, reference: Reference) -> _Windows:
    data, training = read_windows(windows, negative_set), config.promoters.training
    split = data.rows["split"].to_numpy()
    learnt = training_windows(data, training.examples, training.seed)
    if len(learnt) > LEARNT_FROM:
        rng = np.random.default_rng((config.seed, len(learnt)))
        learnt = np.sort(rng.choice(learnt, LEARNT_FROM, replace=False))
    parts = [learnt]
    parts += [np.flatnonzero(split == name) for name in SPLITS[1:]]
    for name, part in zip(SPLITS, parts, strict=True):
        if len(np.unique(data.labels[part])) < 2:
            raise DataError(
                f"{windows}: the {name} windows are not of both classes, which probes have to tell apart"
            )
    rows = np.concatenate(parts)
    sequences = window_sequences(reference, data.rows.iloc[rows], config.seed)
    numbers = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return _Windows(sequences, data.labels[rows], numbers)


def _probed(
    name: str,
    encoder: Encoder,
    rows: list[Ids],
    windows: _Windows,
    pad_id: int,
    batch_size: int,
    device: torch.device,
) -> list[Probed]:
    """A probe for each layer of an encoder."""
    layers, width = 1 + encoder.config.layers, encoder.config.hidden
    found = []
    with scratch_directory() as scratch, full_disk_told(scratch, scratch):
        # Files that are written, not mapped: a mapped one on a full disk ends the process without a word.
        files = [scratch / f"layer-{layer}" for layer in range(layers)]
        starts = range(0, len(rows), ROWS_AT_ONCE)
        for first in progress(starts, f"{name} weights", len(starts), "parts"):
            some = rows[first : first + ROWS_AT_ONCE]
            means = layer_means(encoder, some, pad_id=pad_id, batch_size=batch_size, device=device)
            for layer, file in enumerate(files):
                with file.open("ab") as stream:
                    stream.write(means[:, layer].astype(np.float32).tobytes())
        learnt, chosen_on, judged = (windows.of(number) for number in range(len(SPLITS)))
        for layer, file in enumerate(files):
            own, y = np.fromfile(file, np.float32).reshape(-1, width), windows.labels
            probe = fit_probe(own[learnt], y[learnt], own[chosen_on], y[chosen_on])
            found.append(Probed(name, layer, probe.penalty, probe.predict(own[judged])))
    log(f"{name} weights: {layers} layers probed")
    return found


def _kmers(config: Config, windows: _Windows) -> Probed:
    settings = config.promoters.evaluation
    model = KmerLogistic(settings.baseline_kmer, settings.seed)
    learnt, judged = ([windows.sequences[row] for row in windows.of(number)] for number in (0, 2))
    model.fit(learnt, windows.labels[windows.of(0)])
    return Probed(KMERS, None, model.penalty, model.predict(judged))
