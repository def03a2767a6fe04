"""Arrays of rows × tracks in every format give the same values; damaged and foreign files are refused."""

import gzip

import h5py
import numpy as np
import pandas as pd
import pytest

from bigbird_dna.errors import DataError
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.reporting import arrays as track_arrays
from bigbird_dna.reporting.arrays import open_array
from bigbird_dna.reporting.track_evaluation import read_slice, score_type
from tests.golden.messages import fails

NAMES = ("a", "b", "c d", "e", "f")


@pytest.fixture
def values() -> np.ndarray:
    return np.random.default_rng(0).random((203, 5)).astype(np.float32)


def whole(
    array: track_arrays.TrackArray, first: int = 0, last: int | None = None
) -> np.ndarray:
    return array.read(first, array.tracks if last is None else last).T


def write_tsv(path, values, names):
    frame = pd.DataFrame(values, columns=names)
    frame.insert(0, "contig", "I")
    frame.insert(1, "start", np.arange(len(values)) * 200)
    frame.to_csv(path, sep="\t", index=False)


WRITERS = {
    "c.npy": lambda path, v: np.save(path, v),
    "fortran.npy": lambda path, v: np.save(path, np.asfortranarray(v)),
    "big_endian.npy": lambda path, v: np.save(path, v.astype(">f4")),
    "one.npz": lambda path, v: np.savez(path, x=v, tracks=np.array(NAMES)),
    "fortran.npz": lambda path, v: np.savez(path, x=np.asfortranarray(v)),
    "several.npz": lambda path, v: np.savez_compressed(
        path, predictions=v, labels=v > 0.5
    ),
    "a.parquet": lambda path, v: pd.DataFrame(v, columns=NAMES).to_parquet(path),
    "a.tsv": lambda path, v: write_tsv(path, v, NAMES),
    "a.tsv.gz": lambda path, v: write_tsv(path, v, NAMES),
    "a.csv": lambda path, v: pd.DataFrame(v, columns=NAMES).to_csv(path, index=False),
    "a.csv.gz": lambda path, v: pd.DataFrame(v, columns=NAMES).to_csv(path),
    "a.index.tsv": lambda path, v: pd.DataFrame(v, columns=NAMES).to_csv(
        path, sep="\t"
    ),
    "a.index.parquet": lambda path, v: pd.DataFrame(v, columns=NAMES).to_parquet(
        path, index=True
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_formats_read_alike(tmp_path, values, name):
    path = tmp_path / name
    WRITERS[name](path, values)
    array = open_array(path, "predictions")
    assert (array.rows, array.tracks) == values.shape
    np.testing.assert_array_equal(whole(array).astype(np.float32), values)
    np.testing.assert_array_equal(whole(array, 1, 4).astype(np.float32), values[:, 1:4])
    named = name == "one.npz" or name.startswith("a.")
    assert array.names == (NAMES if named else None)
    if name in ("a.tsv", "a.tsv.gz"):
        assert array.intervals["start"].tolist()[:2] == [0, 200]


@pytest.mark.parametrize("kind", ["predictions", "labels"])
def test_an_array_of_one_axis_is_one_track(tmp_path, values, kind):
    flat = values[:, 0]
    np.save(tmp_path / "x.npy", flat)
    np.savez(tmp_path / "one.npz", x=flat)
    np.savez(tmp_path / "several.npz", predictions=flat, labels=flat)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=flat, chunks=(50,))
    (tmp_path / "x.csv").write_text("x\n" + "".join(f"{v:.9g}\n" for v in flat))
    for source in (*tmp_path.iterdir(), flat):
        array = open_array(source, kind)
        assert (array.rows, array.tracks) == (203, 1)
        np.testing.assert_array_equal(whole(array).astype(np.float32), flat[:, None])


TABLE = (
    "## bigbird-dna 0\n#contig\tstart\tend\tname\tstrand\tnote\ta\tb\tc d\n"
    "I\t0\t9\t.\t.\t.\t0.25\t1e-05\t.\nI\t9\t18\tx\t+\ttoo_many_n\t.\t.\t.\nII\t0\t9\tNA\t.\t.\t1\t0.5\t.\n"
)


@pytest.mark.parametrize("ending", ["tsv", "csv", "parquet"])
def test_a_table_with_notes_and_dots(tmp_path, ending):
    """As `predict-tracks` writes it: the note is nothing to evaluate or to compare, a dot is no figure."""
    path = tmp_path / f"x.{ending}"
    if ending == "parquet":
        from io import StringIO

        table = pd.read_csv(
            StringIO(TABLE.replace("#contig", "contig")),
            sep="\t",
            skiprows=1,
            na_values=".",
        )
        table["note"] = table["note"].astype(object)
        table.to_parquet(path, index=False)
    else:
        path.write_text(TABLE if ending == "tsv" else TABLE.replace("\t", ","))
    array = open_array(path, "predictions")
    assert array.names == ("a", "b", "c d")
    assert list(array.intervals.columns) == ["contig", "start", "end", "name", "strand"]
    np.testing.assert_array_equal(
        whole(array), [[0.25, 1e-5, np.nan], [np.nan] * 3, [1, 0.5, np.nan]]
    )


@pytest.mark.parametrize("chunks", [None, (50, 2)])
def test_hdf5(tmp_path, values, chunks):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("run/scores", data=values, chunks=chunks)
        file["numbers"] = np.arange(3)
        file["tracks"] = list(NAMES)
    for name in (path, f"{path}::run/scores"):
        array = open_array(name, "predictions")
        assert array.names == NAMES
        np.testing.assert_array_equal(whole(array, 1, 5), values[:, 1:5])
    with fails(DataError):
        open_array(f"{path}::x", "predictions")


@pytest.mark.parametrize("tracks", [5, 8, 21])
def test_packed_labels_of_a_data_set(tmp_path, tracks):
    dense = np.random.default_rng(1).integers(0, 2, (70, tracks)).astype(np.uint8)
    PackedLabels.from_dense(dense).save(tmp_path / "labels.npz")
    array = open_array(tmp_path / "labels.npz", "labels")
    for first in range(tracks):
        np.testing.assert_array_equal(whole(array, first, tracks), dense[:, first:])


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("none.npy", None, ""),
        ("a.npy", b"", ""),
        *(
            (f"a.{kind}", b"nothing of the kind", "")
            for kind in ("npy", "npz", "h5", "parquet", "xls")
        ),
        ("a.csv", b'a,"b,c"\n1,2\n3,x\n', "line 3: column 'b,c': 'x'"),
        ("a.tsv", b"a\tb\n1\t2\n3\tx\n", "line 3: column 'b': 'x'"),
        ("a.tsv", b"a\tb\n1\t.\n2\tx\n", "line 3: column 'b': 'x'"),
        ("a.tsv", b"note\tstart\nx\t1\n", "(1, 0)"),
        ("a.tsv", b"a\tb\n", ""),
        ("a.tsv", b"contig\tstart\nI\t3\n", "(1, 0)"),
        ("a.tsv", b"a\tb\n1\t2\n1\t2\t3\n", "3"),
        ("a.tsv", b"a\tb\n1\t2\n1\n", "1"),
        ("a.tsv.gz", gzip.compress(b"a\n1\n2\n", mtime=0)[:-9], "gzip"),
    ],
)
def test_bad_files(tmp_path, name, content, named):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with fails(DataError, name, named):
        open_array(path, "predictions")


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        (lambda values: {"x": values, "y": values}, "x, y"),
        (lambda values: {"x": values[None]}, "x"),
        (lambda values: {"x": values[0], "y": values[0]}, "x, y"),
        (lambda values: {"x": values, "tracks": np.array(NAMES[:4])}, "4"),
        (
            lambda values: {
                "packed": np.full((4, 1), 255, np.uint8),
                "tracks": np.array(9),
            },
            "9",
        ),
        (lambda values: np.array([["a"]]), "<U1"),
        (lambda values: values[None], (1, 203, 5)),
    ],
)
def test_bad_arrays(tmp_path, values, arrays, named):
    found = arrays(values)
    path = tmp_path / f"a.{'npz' if isinstance(found, dict) else 'npy'}"
    np.savez(path, **found) if isinstance(found, dict) else np.save(path, found)
    with fails(DataError, path, named):
        open_array(path, "labels")


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_truncated(tmp_path, values, suffix):
    path = tmp_path / f"a.{suffix}"
    np.save(path, values) if suffix == "npy" else np.savez_compressed(path, values)
    path.write_bytes(path.read_bytes()[:-60])
    with fails(DataError, path):
        open_array(path, "predictions")


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("f2", "f4"),
        (">f4", "f4"),
        ("f8", "f8"),
        ("u1", "f4"),
        ("i2", "f4"),
        ("i4", "f8"),
        ("?", "f4"),
    ],
)
def test_scores_keep_their_order(dtype, expected):
    assert score_type(np.dtype(dtype)) == np.dtype(expected)


@pytest.mark.parametrize(
    ("labels", "coded"),
    [
        (np.array([[True, False]]), [[1], [0]]),
        (np.array([[1, -1]], np.int8), [[1], [-1]]),
        (np.array([[1.0, np.nan]]), [[1], [-1]]),
        (np.array([[0, 1]], np.uint8), [[0], [1]]),
    ],
)
def test_labels_that_were_not_measured(labels, coded):
    scores = open_array(np.zeros((1, 2)), "predictions")
    truth = open_array(labels, "labels")
    assert read_slice([scores], truth, 0, 2, ("a", "b"))[1].tolist() == coded


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2, "u1"), (255, "u1"), (-2, "i1"), (0.5, "f4"), (np.inf, "f8"), (300, "i4")],
)
def test_other_labels_are_refused(value, dtype):
    labels = np.zeros((9, 3), dtype)
    labels[6, 2] = value
    scores = open_array(np.zeros((9, 3)), "predictions")
    with fails(DataError):
        read_slice([scores], open_array(labels, "labels"), 1, 3, ("a", "b", "c"))


def test_a_missing_prediction_matters_where_the_label_was_measured():
    labels = np.array([[1, 0], [-1, 1], [0, -1], [1, 1]], np.int8)
    values = np.array([[0.5, 0.1], [np.nan, 0.2], [0.3, np.nan], [0.4, np.inf]])
    scores, truth = open_array(values, "predictions"), open_array(labels, "labels")
    both, coded = read_slice([scores, scores], truth, 0, 2, ("a", "b"))
    measured = coded >= 0
    np.testing.assert_array_equal(both[1][measured], values.T[measured])
    for row, track in ((0, 0), (3, 1)):
        bad = values.copy()
        bad[row, track] = np.nan
        with fails(DataError, f"row {row + 1}, track {'ab'[track]!r}"):
            read_slice(
                [scores, open_array(bad, "predictions")], truth, 0, 2, ("a", "b")
            )
    bad = open_array(np.full((4, 2), np.nan), "predictions")
    with fails(DataError):
        read_slice([bad], truth, 0, 2, ("a", "b"))
    with fails(DataError):
        read_slice([bad], truth, 1, 2, ("a", "b"))
