"""Packed labels are the labels."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.labels import LabelBuilder, PackedLabels
from tests.golden.messages import fails


def random_labels(rows: int, tracks: int, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).random((rows, tracks)) < 0.3).astype(np.uint8)


@given(st.integers(0, 40), st.integers(1, 30), st.integers(0, 2**16))
def test_packing_keeps_every_label(rows, tracks, seed):
    dense = random_labels(rows, tracks, seed)
    labels = PackedLabels.from_dense(dense)
    assert labels.shape == dense.shape
    assert labels.packed.shape == (rows, -(-tracks // 8))
    assert np.array_equal(labels.rows(), dense)
    assert np.array_equal(labels.positives(), dense.sum(axis=0))
    assert np.array_equal(labels.any(), dense.any(axis=1))
    rng = np.random.default_rng(seed)
    index = rng.integers(0, rows, 7) if rows else np.zeros(0, np.intp)
    assert np.array_equal(labels.rows(index), dense[index])
    assert np.array_equal(labels.positives(index), dense[index].sum(axis=0))
    assert np.array_equal(labels.take(index).rows(), dense[index])
    chosen = rng.permutation(tracks)[: rng.integers(0, tracks) + 1]
    assert np.array_equal(labels.select(chosen).rows(), dense[:, chosen])


def test_bits_are_counted_from_the_lowest():
    dense = np.zeros((1, 10), np.uint8)
    dense[0, [0, 2, 9]] = 1
    assert PackedLabels.from_dense(dense).packed.tolist() == [[0b101, 0b10]]


@given(st.integers(1, 40), st.integers(1, 30), st.integers(0, 2**16))
def test_tracks_add_up(rows, tracks, seed):
    dense = random_labels(rows, tracks, seed)
    builder = LabelBuilder(rows, tracks)
    for track in range(tracks):
        builder.mark(track, np.flatnonzero(dense[:, track]))
    assert np.array_equal(builder.build().rows(), dense)
    assert np.array_equal(builder.any(), dense.any(axis=1))
    keep = np.arange(0, rows, 2)
    assert np.array_equal(builder.build(keep).rows(), dense[keep])


def test_a_file_holds_the_labels_and_is_the_same_every_time(tmp_path):
    labels = PackedLabels.from_dense(random_labels(1000, 13, 1))
    labels.save(tmp_path / "a.npz")
    labels.save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    back = PackedLabels.load(tmp_path / "a.npz")
    assert back.tracks == 13
    assert np.array_equal(back.packed, labels.packed)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    with fails(DataError):
        PackedLabels.load(path)
    path.write_bytes(b"nothing of the kind")
    with fails(DataError):
        PackedLabels.load(path)
    np.savez(path, packed=np.zeros((3, 1), np.uint8), tracks=np.array(9))
    with fails(DataError):
        PackedLabels.load(path)
    np.savez(path, labels=np.zeros((3, 1), np.uint8))
    with fails(DataError):
        PackedLabels.load(path)
    np.savez(path, packed=np.full((3, 1), 128, np.uint8), tracks=np.array(7))
    with fails(DataError):
        PackedLabels.load(path)
    PackedLabels.from_dense(random_labels(1000, 13, 1)).save(path)
    path.write_bytes(path.read_bytes()[:-40])
    with fails(DataError):
        PackedLabels.load(path)
