"""Predictions for sequences in files: those of the model, from any format, in any number of parts."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bigbird_dna
from bigbird_dna.errors import DataError, ModelError, UsageError
from bigbird_dna.genome.sequence import fraction_n
from bigbird_dna.model.directory import save
from bigbird_dna.model.promoter import LoadedSequenceModel
from bigbird_dna.model.settings import SequenceSettings
from tests.cli.command import Run, refused, table
from tests.golden.messages import fails
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

LENGTH = 60
KINDS: dict[str, dict[str, Any]] = {
    "binary": {"outputs": ("label",), "base_positions": True},
    "multiclass": {"outputs": ("a", "b", "c"), "ensemble_kmers": 2},
    "multilabel": {"outputs": ("one", "two"), "length": None},
    "regression": {
        "outputs": ("x", "y"),
        "means": (5.0, -100.0),
        "deviations": (0.5, 30.0),
    },
}
TEXTS = [random_dna(LENGTH, number) for number in range(40)]
TEXTS[3], TEXTS[7] = "N" * 30 + TEXTS[3][30:], TEXTS[7][:50]


def model_of(kind: str, **changes: Any) -> LoadedSequenceModel:
    own = {
        "kind": kind,
        "length": LENGTH,
        "pooling": "mean",
        "jitter": 0,
        "views": 1,
        **KINDS[kind],
    }
    tokenizer = small_tokenizer()
    model = random_model(
        tokenizer,
        small_encoder(tokenizer.vocabulary),
        SequenceSettings(**{**own, **changes}),
        scale=3,
    )
    assert isinstance(model, LoadedSequenceModel)
    return model


@pytest.fixture(scope="module", params=[*KINDS])
def model(request: pytest.FixtureRequest) -> LoadedSequenceModel:
    return model_of(request.param)


def rows_of(path: Path) -> pd.DataFrame:
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    return pd.DataFrame(table(path.read_text()))


def files(home: Path) -> dict[str, Path]:
    """The same sequences in every format."""
    frame = pd.DataFrame(
        {"name": [f"s{number}" for number in range(40)], "sequence": TEXTS}
    )
    frame.to_csv(home / "x.csv", index=False)
    frame.to_csv(home / "x.tsv", index=False, sep="\t")
    frame.to_parquet(home / "x.parquet")
    (home / "x.csv.gz").write_bytes(gzip.compress((home / "x.csv").read_bytes()))
    (home / "x.fa").write_text(
        "".join(f">s{row}\n{text.lower()}\n" for row, text in enumerate(TEXTS))
    )
    return {
        name: home / name
        for name in ("x.csv", "x.tsv", "x.parquet", "x.csv.gz", "x.fa")
    }


@pytest.mark.parametrize("pad", [False, True])
def test_every_format_has_the_model_s_predictions(
    model: LoadedSequenceModel, tmp_path: Path, pad: bool
) -> None:
    own, any_length = model.settings, model.settings.length is None
    scored = [
        (any_length or pad or len(text) == LENGTH) and fraction_n(text) <= 0.25
        for text in TEXTS
    ]
    expected = np.full((40, len(own.outputs)), np.nan, np.float32)
    texts = [text for text, good in zip(TEXTS, scored, strict=True) if good]
    expected[scored] = model.predict(texts, pad=True, device="cpu")
    columns = ["score"] if own.kind == "binary" else [*own.outputs]
    texts_of_all = set()
    for name, path in files(tmp_path).items():
        counts = bigbird_dna.score_sequences(
            model, path, tmp_path / f"{name}.out.parquet", pad=pad, device="cpu"
        )
        assert counts == (40, 40 - sum(scored), 0)
        found = rows_of(tmp_path / f"{name}.out.parquet")
        assert found["name"].tolist() == [f"s{number}" for number in range(40)]
        np.testing.assert_array_equal(found[columns].to_numpy(np.float32), expected)
        notes = dict(zip(found["name"], found["note"], strict=True))
        assert notes["s3"] == "too_many_n"
        assert (notes["s7"] == "other_length") == (not any_length and not pad)
        bigbird_dna.score_sequences(
            model, path, tmp_path / "x.out.tsv", pad=pad, device="cpu"
        )
        lines = (tmp_path / "x.out.tsv").read_text().splitlines()
        texts_of_all.add(tuple(line for line in lines if not line.startswith("##")))
    assert len(texts_of_all) == 1
    if own.kind == "multiclass":
        classes = [
            own.outputs[row.argmax()] if good else None
            for row, good in zip(expected, scored, strict=True)
        ]
        assert [
            None if pd.isna(value) else value for value in found["class"]
        ] == classes


def test_a_table_needs_no_names(tmp_path: Path) -> None:
    pd.DataFrame({"dna": TEXTS[:3], "label": [1, 2, 3]}).to_csv(
        tmp_path / "x.csv", index=False
    )
    model = model_of("multilabel")
    bigbird_dna.score_sequences(
        model, tmp_path / "x.csv", tmp_path / "x.tsv", sequence_column="dna"
    )
    assert rows_of(tmp_path / "x.tsv")["name"].tolist() == ["row_1", "row_2", "row_3"]
    table = pd.DataFrame(
        {"sequence": TEXTS[:3], "name": ["a", None, "a"], "split": ["other"] * 3}
    )
    table.to_parquet(tmp_path / "x.parquet")
    bigbird_dna.score_sequences(model, tmp_path / "x.parquet", tmp_path / "x.tsv")
    assert rows_of(tmp_path / "x.tsv")["name"].tolist() == ["a", "row_2", "a"]


def test_a_long_sequence_is_as_in_the_center(tmp_path: Path) -> None:
    """N beyond the center do not count; the command in the file can be run again."""
    model = model_of("binary")
    save(tmp_path / "model", model, {}, {}, {})
    (tmp_path / "x.fa").write_text(f">a\n{'N' * 200}{TEXTS[0]}{'N' * 200}\n")
    bigbird_dna.score_sequences(
        tmp_path / "model", tmp_path / "x.fa", tmp_path / "x.tsv", pad=True
    )
    assert rows_of(tmp_path / "x.tsv")["note"].tolist() == ["."]
    command = (tmp_path / "x.tsv").read_text().splitlines()[2]
    assert command.endswith("--pad") and command.startswith(
        "## command bigbird-dna score-sequences"
    )


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("x.csv", "name,text\na,ACGT\n", DataError),
        ("x.csv", "sequence\nMKVL\nFFFF\n", DataError),
        ("x.csv", 'sequence,b\n"",1\n', DataError),
        ("x.csv", "sequence,b\nACGT,1\nA\n", DataError),
        ("x.fa", ">a\nMKVL\n>b\n", DataError),
        ("x.fa", f">a\n{'ACGT' * 30_000}\n", DataError),
        ("x.parquet", "not Parquet", DataError),
        ("x.csv", "sequence\n", DataError),
    ],
    ids=[
        "column",
        "protein",
        "empty",
        "cells",
        "protein FASTA",
        "contig",
        "not Parquet",
        "no rows",
    ],
)
def test_faults_name_the_record(
    tmp_path: Path, name: str, content: str, error: type[Exception]
) -> None:
    (tmp_path / name).write_text(content)
    with fails(error, tmp_path / name):
        bigbird_dna.score_sequences(
            model_of("multilabel"), tmp_path / name, tmp_path / "out.tsv"
        )
    assert not (tmp_path / "out.tsv").exists()


BAD = {1: "MKVLSE", 4: "", 5: "ACG*TT", 9: "N" * LENGTH}
NOTES = {1: "invalid_letter", 4: "empty", 5: "invalid_letter", 9: "too_many_n"}


@pytest.mark.parametrize("kind", ["binary", "multilabel"])  # of one length, of any
@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.parquet", "x.fa"])
def test_bad_sequences_have_a_note(
    kind: str, name: str, tmp_path: Path, run: Run
) -> None:
    """They change neither the order nor another row, and are counted."""
    save(tmp_path / "model", model_of(kind), {}, {}, {})
    good = [random_dna(LENGTH, number) for number in range(12)]
    texts = [BAD.get(number, text) for number, text in enumerate(good)]
    frame = pd.DataFrame(
        {"name": [f"s{number}" for number in range(12)], "sequence": texts}
    )
    path = tmp_path / name
    if path.suffix == ".parquet":
        frame.replace("", None).to_parquet(path)
    elif path.suffix == ".fa":
        path.write_text(
            "".join(f">s{number}\n{text}\n" for number, text in enumerate(texts))
        )
    else:
        frame.to_csv(path, index=False, sep="," if path.suffix == ".csv" else "\t")
    found = run("score-sequences", tmp_path / "model", path, "--device", "cpu", "--pad")
    rows = table(found.out)
    assert found.code == 0 and [row["name"] for row in rows] == [
        f"s{number}" for number in range(12)
    ]
    assert {
        number: row["note"] for number, row in enumerate(rows) if row["note"] != "."
    } == NOTES
    assert "3 sequences are not DNA and not scored: " in found.err
    assert "'L' is not a DNA letter" in found.err and "4 not scored" in found.err
    expected = model_of(kind).predict(
        [good[number] for number in range(12) if number not in BAD], device="cpu"
    )
    columns = ["score"] if kind == "binary" else [*KINDS[kind]["outputs"]]
    shown = [[row[column] for column in columns] for row in rows]
    assert [number for number, row in enumerate(shown) if "NA" in row] == [*BAD]
    values = [
        [*map(float, row)] for number, row in enumerate(shown) if number not in BAD
    ]
    np.testing.assert_allclose(values, expected, atol=1e-6)


def test_no_scored_sequence_is_an_error(tmp_path: Path, run: Run) -> None:
    save(tmp_path / "model", model_of("binary"), {}, {}, {})
    (tmp_path / "x.csv").write_text('sequence,b\nACGT,1\nEFQ,1\n"",1\n')
    found = run(
        "score-sequences",
        tmp_path / "model",
        tmp_path / "x.csv",
        "-o",
        tmp_path / "x.tsv",
    )
    sentence = refused(
        found,
        1,
        tmp_path / "x.csv",
        "1 other_length, 1 invalid_letter, 1 empty",
        after_log=True,
    )
    assert "--pad" in sentence and not (tmp_path / "x.tsv").exists()


def test_models_that_cannot_score(tmp_path: Path, home: Path) -> None:
    path = files(tmp_path)["x.csv"]
    with fails(ModelError):
        bigbird_dna.score_sequences(home / "promoter", path)
    with fails(UsageError):
        bigbird_dna.score_sequences(model_of("multilabel", outputs=("name", "b")), path)


def test_standard_input_is_read_as_a_file_is(tmp_path: Path, run: Run) -> None:
    save(tmp_path / "model", model_of("binary"), {}, {}, {})
    path, words = files(tmp_path)["x.fa"], ("score-sequences", tmp_path / "model")
    found = run(*words, path, "--device", "cpu").out
    streamed = run(*words, "-", "--device", "cpu", stdin=path.read_bytes())
    assert table(streamed.out) == table(found)
    bad = f">a\n{TEXTS[0]}\n>b\n>c\nEFQ\n>d"
    streamed = run(*words, "-", "--device", "cpu", stdin=bad.encode())
    notes = [row["note"] for row in table(streamed.out)]
    assert notes == [".", "empty", "invalid_letter", "empty"]
    assert "3 sequences are not DNA" in streamed.err
