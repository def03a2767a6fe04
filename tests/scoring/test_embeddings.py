"""Embeddings in files: those of `Model.embed`, and these against hidden states computed by hand."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import bigbird_dna
from bigbird_dna.errors import BigBirdDnaError
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.model.batching import pad, placed_rows
from bigbird_dna.model.directory import save
from bigbird_dna.model.encoder import Encoder
from bigbird_dna.model.heads import mean_over_tokens
from bigbird_dna.model.model import LoadedModel
from bigbird_dna.model.settings import (
    ChromatinSettings,
    PretrainingSettings,
    SequenceSettings,
    Settings,
)
from tests.cli.command import Run, refused
from tests.golden.messages import fails
from tests.scoring.conftest import RECORDS
from tests.test_public_api import CHROMATIN, PROMOTER
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

LAYERS, WIDTH = 5, 16
TEXTS = [random_dna(length, length) for length in (90, 7, 61, 33, 90, 200)]
TEXTS[2] = TEXTS[2][:20] + "N" * 9 + TEXTS[2][29:]
CHOICES = [0, 2, LAYERS]
SEQUENCES = SequenceSettings(
    kind="binary", outputs=("label",), length=None, pooling="mean", jitter=0, views=1
)


def model_of(settings: Settings | None = None, **sizes: Any) -> LoadedModel:
    tokenizer = small_tokenizer()
    config = small_encoder(tokenizer.vocabulary, **{"layers": LAYERS, **sizes})
    return random_model(tokenizer, config, settings or PretrainingSettings())


@pytest.fixture(scope="module", params=["plain", "extra globals", "learned"])
def model(request: pytest.FixtureRequest) -> LoadedModel:
    sizes: dict[str, dict[str, Any]] = {
        "plain": {},
        "extra globals": {"num_global_tokens": 2},
        "learned": {"position_encoding": "learned", "attention": "full"},
    }
    return model_of(**sizes[request.param])


def hidden(model: LoadedModel, text: str, depth: int) -> np.ndarray:
    """Hidden states of a sequence's tokens, [CLS] and [SEP] included, of an encoder that ends there."""
    encoder = model.one_encoder()
    layers = encoder.layers
    ids = [
        model.tokenizer.cls_id,
        *model.tokenizer.encode(text).tolist(),
        model.tokenizer.sep_id,
    ]
    try:
        encoder.layers = layers[:depth]
        with torch.inference_mode():
            return encoder(torch.tensor([ids]))[0].numpy()
    finally:
        encoder.layers = layers


@pytest.mark.parametrize("layer", CHOICES)
def test_every_pool_of_every_layer_is_that_of_the_hidden_states(
    model: LoadedModel, layer: Any
) -> None:
    expected = [hidden(model, text, layer) for text in TEXTS]
    options: dict[str, Any] = {"layer": layer, "device": "cpu"}
    for pool, reduce in (
        ("mean", lambda x: x.mean(axis=0)),
        ("cls", lambda x: x[0]),
    ):
        found = model.embed(TEXTS, pool=pool, **options)
        np.testing.assert_allclose(found, np.stack([*map(reduce, expected)]), atol=1e-5)
    tokens = model.embed(TEXTS, pool="token", **options)
    bases = model.embed(TEXTS, pool="base", **options)
    for text, own, of_tokens, of_bases in zip(
        TEXTS, expected, tokens, bases, strict=True
    ):
        np.testing.assert_allclose(of_tokens, own[1:-1], atol=1e-5)
        _, offsets = model.tokenizer.encode_with_offsets(text)
        assert len(of_bases) == len(text)
        np.testing.assert_array_equal(
            of_bases, np.repeat(of_tokens, np.diff(offsets), axis=0)
        )


def test_the_last_layer_is_the_default() -> None:
    model = model_of()
    expected = model.embed(TEXTS, device="cpu")
    found = model.embed(TEXTS, layer=LAYERS, device="cpu")
    np.testing.assert_array_equal(found, expected)
    assert model.embed([], pool="base") == []
    assert model.embed([]).shape == (0, WIDTH)


@pytest.mark.parametrize("layer", CHOICES)
def test_neither_batch_nor_order_nor_padding_matter(layer: Any) -> None:
    model = model_of()
    order = np.random.default_rng(0).permutation(len(TEXTS))
    for pool in ("mean", "cls", "token"):
        found = model.embed(TEXTS, layer=layer, pool=pool, device="cpu")
        mixed = [TEXTS[i] for i in order]
        again = model.embed(mixed, layer=layer, pool=pool, batch_size=1, device="cpu")
        for number, place in enumerate(order):
            np.testing.assert_allclose(again[number], found[place], atol=1e-5)
    encoder: Encoder = model.one_encoder()
    placed = placed_rows(model.tokenizer, TEXTS, encoder.config.max_length, 0.5)
    rows = [row for row, _ in placed]
    ids, lengths = pad(rows, model.tokenizer.pad_id, encoder.config.max_length)
    with torch.inference_mode():
        states = encoder.up_to(layer)(ids, lengths)
        padded = mean_over_tokens(states, lengths).numpy()
    np.testing.assert_allclose(
        padded, model.embed(TEXTS, layer=layer, device="cpu"), atol=1e-5
    )


# Files


def read(path: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Names and coordinates, and the embeddings (R, D), of a file."""
    frame = pd.read_parquet(path)
    values = np.stack(frame.pop("embedding").to_numpy())
    return frame.fillna(""), values


def inputs(home: Path) -> list[Path]:
    """The same sequences in several formats."""
    names = [f"s{number}" for number in range(len(TEXTS))]
    frame = pd.DataFrame({"name": names, "dna": TEXTS})
    frame.to_csv(home / "x.csv", index=False)
    frame.to_parquet(home / "x.parquet")
    text = "".join(
        f">{name} about\n{text.lower()}\n"
        for name, text in zip(names, TEXTS, strict=True)
    )
    (home / "x.fa").write_text(text)
    (home / "x.fa.gz").write_bytes(gzip.compress(text.encode()))
    return [home / name for name in ("x.csv", "x.parquet", "x.fa", "x.fa.gz")]


@pytest.mark.parametrize("layer", [None, 1])
@pytest.mark.parametrize("pool", ["mean", "token", "base"])
def test_every_file_has_what_the_model_gives(
    tmp_path: Path, pool: Any, layer: Any
) -> None:
    model, out = model_of(), tmp_path / "out.parquet"
    expected = model.embed(TEXTS, pool=pool, layer=layer, device="cpu")
    flat = expected if pool == "mean" else np.concatenate(list(expected))
    for path in inputs(tmp_path):
        options: dict[str, Any] = {
            "sequence_column": "dna",
            "pool": pool,
            "layer": layer,
            "device": "cpu",
        }
        counts = bigbird_dna.embed(model, path, out, **options)
        assert counts == (len(TEXTS), len(flat), 0)
        table, values = read(out)
        np.testing.assert_array_equal(values, flat)
        sizes = [1] * len(TEXTS) if pool == "mean" else [*map(len, expected)]
        owners = np.repeat(range(len(TEXTS)), sizes)
        assert table["name"].tolist() == [f"s{owner}" for owner in owners]
        assert set(table["note"]) == {""}
    for owner, text in enumerate(TEXTS):
        rows = table[owners == owner]
        if pool == "base":
            assert rows["position"].tolist() == [*range(len(text))]
        elif pool == "token":
            offsets = model.tokenizer.encode_with_offsets(text).offsets
            assert rows["token_start"].tolist() == offsets[:-1].tolist()
            assert rows["token_end"].tolist() == offsets[1:].tolist()


def test_every_task_has_embeddings_but_an_ensemble(tmp_path: Path) -> None:
    path, more = inputs(tmp_path)[2], tmp_path / "out.parquet"
    ensemble = CHROMATIN.model_copy(update={"members": 2})
    kinds: list[Settings] = [Settings(), PROMOTER, CHROMATIN, SEQUENCES]
    for settings in kinds:
        save(tmp_path / settings.task, model_of(settings), {}, {}, {})
        assert bigbird_dna.embed(tmp_path / settings.task, path, more).sequences == len(
            TEXTS
        )
        found = bigbird_dna.load(tmp_path / settings.task).embed(TEXTS)
        np.testing.assert_array_equal(read(more)[1], found)
    assert isinstance(ensemble, ChromatinSettings)
    with fails(BigBirdDnaError, "2"):
        bigbird_dna.embed(model_of(ensemble), path, more)


@pytest.fixture
def regions(tmp_path: Path) -> Path:
    """Regions of both strands and of none."""
    lines = (
        "long\t100\t163\tone\t0\t+",
        "long\t100\t163\ttwo\t0\t-",
        "gap\t120\t170",
        "last\t0\t260\tall",
    )
    (tmp_path / "x.bed").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path / "x.bed"


@pytest.mark.parametrize("pool", ["mean", "token", "base"])
def test_regions_are_as_their_sequences(
    home: Path, tmp_path: Path, regions: Path, pool: Any
) -> None:
    reference, model = home / "genome.fa.gz", bigbird_dna.load(home / "pretraining")
    forward = RECORDS["long"][100:163], RECORDS["gap"][120:170], RECORDS["last"]
    texts = [forward[0], reverse_complement(forward[0]), *forward[1:]]
    (tmp_path / "x.fa").write_text(
        "".join(f">{n}\n{text}\n" for n, text in enumerate(texts))
    )
    bigbird_dna.embed(model, tmp_path / "x.fa", tmp_path / "a.parquet", pool=pool)
    counts = bigbird_dna.embed(
        model, regions, tmp_path / "b.parquet", reference=reference, pool=pool
    )
    assert counts.sequences == 4
    (plain, expected), (table, found) = (
        read(tmp_path / "a.parquet"),
        read(tmp_path / "b.parquet"),
    )
    np.testing.assert_array_equal(found, expected)
    names = dict(
        zip(map(str, range(4)), ("one", "two", "gap:120-170", "all"), strict=True)
    )
    assert table["name"].tolist() == [names[name] for name in plain["name"]]
    assert dict(zip(table["name"], table["strand"], strict=True)) == {
        **{"one": "+", "two": "-", "gap:120-170": ".", "all": "."}
    }
    starts = dict(zip(names.values(), (100, 100, 120, 0), strict=True))
    ends = dict(zip(names.values(), (163, 163, 170, 260), strict=True))
    for row in table.to_dict("records"):
        first, last = starts[row["name"]], ends[row["name"]]
        if pool == "mean":
            assert (row["start"], row["end"]) == (first, last)
            continue
        start = row["token_start"] if pool == "token" else row["position"]
        end = row["token_end"] if pool == "token" else start + 1
        place = (
            (last - end, last - start)
            if row["strand"] == "-"
            else (first + start, first + end)
        )
        assert (row["start"], row["end"]) == place


def test_long_sequences_keep_their_center_and_say_so(tmp_path: Path) -> None:
    model, long = model_of(max_length=32), random_dna(2000, 1)
    (tmp_path / "x.fa").write_text(f">a\n{long}\n>b\nACGTACGT\n")
    assert (
        bigbird_dna.embed(model, tmp_path / "x.fa", tmp_path / "x.parquet").truncated
        == 1
    )
    table, values = read(tmp_path / "x.parquet")
    assert table["note"].tolist() == ["truncated", ""]
    np.testing.assert_array_equal(values, model.embed([long, "ACGTACGT"]))
    bigbird_dna.embed(model, tmp_path / "x.fa", tmp_path / "x.parquet", pool="token")
    table, _ = read(tmp_path / "x.parquet")
    table = table[table["name"] == "a"]
    assert (
        len(table) == 30
        and (table["token_end"][:-1].to_numpy() == table["token_start"][1:]).all()
    )
    assert abs(table["token_start"].iloc[0] + table["token_end"].iloc[-1] - 2000) < 200
    with fails(BigBirdDnaError, "'a'"):
        bigbird_dna.embed(model, tmp_path / "x.fa", tmp_path / "x.parquet", pool="base")


WRONG = {
    "layer 9": ("--layer", 9),
    "negative layer": ("--layer", -1),
    "pool": ("--pool", "median"),
    "compressed": ("-o", "x.parquet.gz"),
    "suffix": ("-o", "x.csv"),
    "stdout": ("-o", "-"),
    "array without names": ("-o", "x.npy"),
}


@pytest.mark.parametrize("name", WRONG)
def test_options_that_make_no_sense(
    home: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    more = WRONG[name] if "-o" in WRONG[name] else (*WRONG[name], "-o", "x.parquet")
    result = run("embed", home / "pretraining", home / "genome.fa", *more)
    assert (result.code, result.out) == (2, "")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "text",
    [
        "nowhere\t1\t9\n",
        "long\t1\t9\nnowhere\t1\t9\n",
        "long\t800\t1000\n",
        "long\t1\t9\tx\t0\t?\n",
    ],
)
def test_regions_that_are_not_there(
    home: Path, tmp_path: Path, run: Run, text: str
) -> None:
    bed, out = tmp_path / "x.bed", tmp_path / "x.parquet"
    bed.write_text(text)
    words = ["embed", home / "pretraining", bed, "-o", out]
    refused(run(*words, "--reference", home / "genome.fa.gz"), 1, bed)
    assert not out.exists()
    refused(run(*words), 2, bed)
