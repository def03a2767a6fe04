"""Shards of token stores: read as one array, and verified when needed."""

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import whole_contigs
from bigbird_dna.tokens.arrays import ArrayFile, ShardedArray
from bigbird_dna.tokens.build import build_store
from bigbird_dna.tokens.corpus import DocumentPlan
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.shard import FILES, MANIFEST, shard_name
from bigbird_dna.tokens.store import COUNTS, TokenShards, TokenStore
from tests.golden.messages import fails
from tests.tokens.test_store import PLAN, expected_documents, files, text

SPLITS = ("train", "valid", "test")
SMALL = 3000  # bp of a shard


@pytest.fixture
def arrays(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[list[list[int]]], ShardedArray]:
    """Offsets in files, from the differences of each shard's."""

    def write(parts: list[list[int]]) -> ShardedArray:
        home = tmp_path_factory.mktemp("arrays")
        for number, part in enumerate(parts):
            (home / f"{number}").write_bytes(
                b"head" + np.append(0, np.cumsum(part)).astype("<i8").tobytes()
            )
        dtype = np.dtype("<i8")
        opened = [
            ArrayFile(home / f"{number}", dtype, 4, len(part) + 1)
            for number, part in enumerate(parts)
        ]
        return ShardedArray(
            opened.__getitem__, list(map(len, parts)), dtype, list(map(sum, parts))
        )

    return write


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 5, 700, 4000]), st.sampled_from([1, 3, 10**6])
        ),
        max_size=5,
    ),
    st.integers(0, 2**32),
)
def test_arrays_in_files_are_read_like_one_array(
    arrays: Callable[[list[list[int]]], ShardedArray],
    shapes: list[tuple[int, int]],
    seed: int,
) -> None:
    """Also where the values grow unevenly: a search must not rely on its first guess."""
    rng = np.random.default_rng(seed)
    parts = [
        (1 + rng.pareto(0.5, count).clip(0, 1e9) * size).astype(int).tolist()
        for count, size in shapes
    ]
    found = arrays(parts)
    whole = np.append(0, np.cumsum([step for part in parts for step in part])).astype(
        np.int64
    )
    assert len(found) == len(whole) and (np.asarray(found) == whole).all()
    for start, stop in rng.integers(-1, len(whole) + 2, (20, 2)):
        assert (found[start:stop] == whole[start:stop]).all()
    for index in rng.integers(-len(whole), len(whole), 20):
        assert found[index] == whole[index]
    for index in (len(whole), -len(whole) - 1):
        with pytest.raises(IndexError):
            found[index]
    some = np.flatnonzero(rng.random(len(whole)) < 0.1)
    assert (found[some] == whole[some]).all()
    last = int(whole[-1])
    for value in {
        -1,
        0,
        1,
        last,
        last + 1,
        *rng.integers(0, last + 2, 10),
        *rng.choice(whole, 10),
    }:
        for side in ("left", "right"):
            assert found.searchsorted(value, side) == np.searchsorted(
                whole, value, side
            )


def test_a_file_that_became_shorter_is_not_read_as_whole(tmp_path: Path) -> None:
    path = tmp_path / "values"
    path.write_bytes(bytes(40))
    values = ArrayFile(path, np.dtype("<i8"), 0, 5)
    assert values.read(0, 5).tolist() == [0] * 5
    path.write_bytes(bytes(30))
    for first in (0, 4):
        with fails(DataError, path):
            values.read(first, 5)


def build(
    home: Path,
    reference: Reference,
    tokenizer: DnaTokenizer,
    bases: int = SMALL,
    **options: object,
) -> Path:
    """Stores of all splits, of one contig each."""
    for split, contig in zip(SPLITS, ("a", "b", "c"), strict=True):
        contigs = whole_contigs({contig: reference.contigs[contig]})
        given = {"split": split, "seed": 3, "shard_bases": bases, **options}
        build_store(home / split, reference, contigs, tokenizer, PLAN, **given)  # type: ignore[arg-type]
    return home


@pytest.fixture(scope="module")
def stores(
    tmp_path_factory: pytest.TempPathFactory,
    reference: Reference,
    tokenizer: DnaTokenizer,
) -> Path:
    return build(tmp_path_factory.mktemp("stores"), reference, tokenizer)


@pytest.mark.parametrize("strands", ["both", "forward"])
@pytest.mark.parametrize("bases", [1, 2000, 10**9])
def test_shards_hold_the_documents_in_order(
    tmp_path: Path,
    reference: Reference,
    tokenizer: DnaTokenizer,
    bases: int,
    strands: str,
) -> None:
    plan = DocumentPlan(3, 300, (40, 80), (5, 9), strands)  # type: ignore[arg-type]
    contigs = whole_contigs(reference.contigs)
    info = build_store(
        tmp_path / "train",
        reference,
        contigs,
        tokenizer,
        plan,
        max_n=0.3,
        shard_bases=bases,
    )
    one = build_store(tmp_path / "one", reference, contigs, tokenizer, plan, max_n=0.3)
    assert {key: info[key] for key in COUNTS} == {key: one[key] for key in COUNTS}  # type: ignore[literal-required]
    store = TokenStore.open(tmp_path / "train", tokenizer, verify=True)
    assert text(store, tokenizer) == expected_documents(
        reference, contigs, plan, 0, 0.3
    )
    assert (info["shard_count"] == 1) == (bases > 10**6)
    names = {path.name for path in (tmp_path / "train").iterdir() if path.is_dir()}
    assert names == {shard_name(number + 1) for number in range(info["shard_count"])}
    for shard in info["shards"]:
        assert (
            json.loads(
                (
                    tmp_path / "train" / shard_name(shard["number"]) / MANIFEST
                ).read_text()
            )
            == shard
        )
        read = shard["bases"] + shard["skipped_bases"]
        assert read >= bases or shard["number"] == info["shard_count"]
        assert read < bases + 9 * 80


def test_any_number_of_workers_writes_the_same_bytes(
    stores: Path, tmp_path: Path, reference: Reference, tokenizer: DnaTokenizer
) -> None:
    build(tmp_path, reference, tokenizer, workers=2)
    assert files(tmp_path) == files(stores)
    assert len([*stores.glob("*/shard-*")]) > 10


def flip(path: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_only_sizes_are_read_at_first_and_a_shard_is_verified_when_it_is_read(
    stores: Path, tmp_path: Path
) -> None:
    home = Path(shutil.copytree(stores / "train", tmp_path / "train"))
    info = TokenStore.open(home).info
    assert info["shard_count"] > 4
    flip(home / shard_name(3) / "tokens.bin")
    (home / shard_name(4) / MANIFEST).write_text("{}")
    ends = np.cumsum([shard["tokens"] for shard in info["shards"]]).tolist()
    with fails(DataError, home / shard_name(3)):
        TokenStore.open(home, verify=True)
    TokenStore.open(home).verify(2 * ends[1])  # as many bytes as the first two have
    with fails(DataError, home / shard_name(3)):
        TokenStore.open(home).verify(2 * ends[2])
    for rank, size in ((0, 1), (1, 2), (0, 2)):
        store = TokenStore.open(home)
        store.verify_when_read(rank, size)
        assert len(store.tokens[: ends[1]]) == ends[1]
        for number, (first, last) in enumerate(pairwise(ends[1:4]), 3):
            if (number - 1) % size == rank:
                with fails(DataError, home / shard_name(number)):
                    store.tokens[first:last]
            else:
                assert len(store.tokens[first:last]) == last - first
    for name in FILES[::-1]:
        (home / shard_name(5) / name).unlink()
        with fails(DataError, home / shard_name(5) / name):
            TokenStore.open(home)


def test_stores_that_are_read_as_one(stores: Path) -> None:
    """The arrays are those of the documents of one store after those of the other."""
    first, second = (TokenStore.open(stores / split) for split in ("train", "valid"))
    both = TokenShards(stores, [*first.shards, *second.shards])
    for name, more in (
        ("tokens", None),
        ("sentences", first.tokens),
        ("documents", first.sentences),
    ):
        one, two = (
            np.asarray(getattr(store, name)).astype(np.int64)
            for store in (first, second)
        )
        shift = 0 if more is None else len(more) - (name == "documents")
        expected = [*one[: len(one) - (more is not None)], *(two + shift)]
        assert np.asarray(getattr(both, name)).tolist() == expected
    sentences = np.asarray(both.sentences)
    lengths = np.diff(sentences[np.asarray(both.documents)])
    assert both.document_lengths == ((lengths > 1).sum(), lengths.max())
