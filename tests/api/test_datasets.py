"""The data sets for training elsewhere, through a `DataLoader` with workers."""

import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import bigbird_dna
from bigbird_dna.data.promoter_windows import read_windows, window_sequences
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.golden.messages import fails
from tests.tiny_run import DOWNSTREAM, UPSTREAM
from tests.toys import MOTIFS, label_bins, write_motif_genome


@pytest.fixture(scope="module")
def tracks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reference, and a chromatin data set of it."""
    home = tmp_path_factory.mktemp("tracks")
    write_motif_genome(
        home, {"a": 6_000, "b": 2_000, "c": 2_000}, spacing=170, gaps={"a": (600, 640)}
    )
    label_bins(home, {name: home / f"peaks/{name}.bed" for name in MOTIFS}, "b", "c")
    return home


def test_windows_of_tracks_are_the_bins_with_their_labels(tracks: Path) -> None:
    data = bigbird_dna.TrackWindows(
        tracks / "data", tracks / "reference.fa.gz", window=100
    )
    made = read_dataset(tracks / "data")
    rows = made.rows("train")
    assert len(data) == len(rows) and data.tracks == list(MOTIFS)
    with Reference(tracks / "reference.fa.gz") as genome:
        for number in (0, 7, len(rows) - 1, -1):
            text, labels = data[number]
            row = made.bins.iloc[rows[number]]
            expected = genome.fetch(
                Interval(row["contig"], row["start"] - 30, row["end"] + 30)
            )
            assert text == expected and len(text) == 100
            assert labels.dtype == torch.float32
            assert labels.tolist() == made.labels.rows([rows[number]])[0].tolist()
    found = np.array([labels.numpy() for _, labels in data])  # a loop ends
    assert found.sum(axis=0).tolist() == made.labels.positives(rows).tolist()
    parts = [
        len(
            bigbird_dna.TrackWindows(
                tracks / "data", tracks / "reference.fa.gz", window=100, split=split
            )
        )
        for split in ("train", "valid", "test", None)
    ]
    assert parts[3] == sum(parts[:3]) == len(made)
    with pytest.raises(IndexError):
        data[len(data)]


@pytest.mark.parametrize("form", ["text", "one-hot", "tokens"])
def test_two_workers_give_what_one_process_gives(tracks: Path, form: Any) -> None:
    genome = tracks / "reference.fa.gz"
    tokenizer = DnaTokenizer.train(["ACGTTGCATGCCA" * 40], tracks / f"{form}.model", 20)
    data = bigbird_dna.TrackWindows(
        tracks / "data", genome, window=100, form=form, tokenizer=tokenizer
    )
    plain = bigbird_dna.TrackWindows(tracks / "data", genome, window=100)
    batches = list(
        DataLoader(data, batch_size=50, num_workers=2, collate_fn=data.collate)
    )
    labels = torch.cat([batch[-1] for batch in batches])
    assert torch.equal(labels, torch.stack([own for _, own in plain]))
    texts = [text for text, _ in plain]
    if form == "text":
        assert [text for batch in batches for text in batch[0]] == texts
    elif form == "one-hot":
        windows = torch.cat([batch[0] for batch in batches])
        assert windows.shape == (len(data), 4, 100) and windows.dtype == torch.float32
        for window, text in zip(windows, texts, strict=True):
            rows = [[float(letter == base) for letter in text] for base in "ACGT"]
            assert torch.equal(window, torch.tensor(rows))
        assert any("N" in text for text in texts)
        assert torch.equal(
            next(iter(DataLoader(data, batch_size=50)))[0], batches[0][0]
        )  # torch's own way
    else:
        rows = [
            row[:length]
            for ids, lengths, _ in batches
            for row, length in zip(ids, lengths, strict=True)
        ]
        assert [tokenizer.decode(row[1:-1]) for row in rows] == texts
        assert {(int(row[0]), int(row[-1])) for row in rows} == {
            (tokenizer.cls_id, tokenizer.sep_id)
        }
        assert (
            len({ids.shape[1] for ids, _, _ in batches}) >= 1
            and batches[0][0].dtype == torch.int64
        )


def test_a_data_set_can_be_sent_to_another_process(tracks: Path) -> None:
    data = bigbird_dna.TrackWindows(
        tracks / "data", tracks / "reference.fa.gz", window=80, form="one-hot"
    )
    again = pickle.loads(pickle.dumps(data))
    assert all(
        torch.equal(one, other) for one, other in zip(again[3], data[3], strict=True)
    )


@pytest.mark.parametrize("negative_set", ["genomic", "permuted", "substituted"])
def test_promoters_come_with_the_negatives_that_training_sees(
    tiny_config: Path, negative_set: str
) -> None:
    from bigbird_dna.config.reading import load_config

    config = load_config(tiny_config)
    paths = config.paths
    rows, labels = read_windows(paths.windows, negative_set)
    with Reference(paths.reference) as genome:
        texts = window_sequences(genome, rows, config.seed)
    for split in ("train", "test", None):
        data = bigbird_dna.PromoterWindows(
            paths.windows,
            paths.reference,
            negative_set=negative_set,
            seed=config.seed,
            split=split,
        )
        kept = [i for i in range(len(rows)) if split in (None, rows["split"][i])]
        assert [text for text, _ in data] == [texts[i] for i in kept]
        assert [float(label) for _, label in data] == [float(labels[i]) for i in kept]
        assert {len(text) for text, _ in data} == {UPSTREAM + DOWNSTREAM}
    loader = DataLoader(
        data, batch_size=16, num_workers=2
    )  # torch's own collate has lists of texts
    seen = [text for batch, _ in loader for text in batch]
    assert seen == texts and len(data.rows) == len(seen)


def test_what_does_not_fit_is_one_sentence(
    tracks: Path, tiny_config: Path, tmp_path: Path
) -> None:
    from bigbird_dna.config.reading import load_config

    genome, data = tracks / "reference.fa.gz", tracks / "data"
    paths = load_config(tiny_config).paths
    write_fasta(tmp_path / "other.fa.gz", [("z", "ACGT" * 50)])
    windows = partial(bigbird_dna.TrackWindows, data, genome)
    promoters = partial(bigbird_dna.PromoterWindows, paths.windows, paths.reference)
    cases: list[tuple[type[Exception], Any]] = [
        (UsageError, lambda: windows(window=9, split="dev")),
        (UsageError, lambda: windows(window=9, form="kmers")),
        (UsageError, lambda: windows(window=0)),
        (UsageError, lambda: windows(window=9, form="tokens")),
        (
            DataError,
            lambda: bigbird_dna.TrackWindows(data, tmp_path / "other.fa.gz", window=9),
        ),
        (DataError, lambda: bigbird_dna.TrackWindows(tmp_path, genome, window=9)),
        (UsageError, lambda: promoters(negative_set="permuted")),
        (DataError, lambda: promoters(negative_set="other")),
    ]
    for kind, call in cases:
        with fails(kind):
            call()


# The public names as a type checker sees them


HERE = Path(__file__).resolve().parent


@pytest.mark.slow
def test_the_public_names_pass_mypy_in_strict_mode() -> None:
    words = (
        "--strict",
        "--config-file=",
        "--ignore-missing-imports",
        HERE / "typed_use.py",
    )
    outcome = subprocess.run(
        [sys.executable, "-m", "mypy", *map(str, words)],
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
