"""Token stores hold what was encoded, and damaged ones are refused."""

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.directories import MARKER
from bigbird_dna.errors import DataError
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import (
    Interval,
    fraction_n,
    reverse_complement,
)
from bigbird_dna.tokens.corpus import DocumentPlan, iter_documents
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.store import (
    DOCUMENTS,
    SENTENCES,
    TOKENS,
    TokenStore,
    build_store,
)
from tests.golden.messages import fails
from tests.toys import whole_contigs

FILES = (TOKENS, SENTENCES, DOCUMENTS)
PLAN = DocumentPlan(
    passes=2,
    max_start_offset=300,
    sentence_bases=(40, 80),
    sentences_per_document=(5, 9),
)


def expected_documents(
    reference: Reference,
    segments: list[Interval],
    plan: DocumentPlan,
    seed: int,
    max_n: float,
) -> list[list[str]]:
    """Documents as lists of sentences, divided where a sentence is left out."""
    documents: list[list[str]] = []
    for document in iter_documents(segments, plan, seed):
        documents.append([])
        sequence = reference.fetch(document.interval)
        if document.reverse:
            sequence = reverse_complement(sequence)
        for start, end in itertools.pairwise((0, *document.ends)):
            sentence = sequence[start:end]
            if fraction_n(sentence) <= max_n:
                documents[-1].append(sentence)
            else:
                documents.append([])
    return [document for document in documents if document]


def text(store: TokenStore, tokenizer: DnaTokenizer) -> list[list[str]]:
    ends, documents = store.sentences.tolist(), store.documents.tolist()
    sentences = [
        tokenizer.decode(store.tokens[a:b]) for a, b in itertools.pairwise(ends)
    ]
    return [sentences[a:b] for a, b in itertools.pairwise(documents)]


def files(directory: Path) -> dict[str, str]:
    """Checksums of all files by their paths in a directory."""
    return {
        f"{path.relative_to(directory)}": checksum(path)
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory,
    reference: Reference,
    tokenizer: DnaTokenizer,
) -> Path:
    path = tmp_path_factory.mktemp("store") / "train"
    build_store(
        path, reference, whole_contigs(reference.contigs), tokenizer, PLAN, seed=3
    )
    return path


@pytest.fixture
def damaged(built: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(built, tmp_path / "store"))


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 99), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_a_store_holds_the_documents(
    tmp_path_factory: pytest.TempPathFactory,
    reference: Reference,
    tokenizer: DnaTokenizer,
    seed: int,
    max_n: float,
) -> None:
    path = tmp_path_factory.mktemp("store") / "train"
    info = build_store(
        path,
        reference,
        whole_contigs(reference.contigs),
        tokenizer,
        PLAN,
        seed=seed,
        max_n=max_n,
    )
    store = TokenStore(path, tokenizer)
    store.verify()
    contigs = whole_contigs(reference.contigs)
    documents = expected_documents(reference, contigs, PLAN, seed, max_n)
    assert text(store, tokenizer) == documents
    kept = [sentence for document in documents for sentence in document]
    drawn = list(iter_documents(contigs, PLAN, seed))
    assert store.info == info
    assert info["documents"] == len(documents) == len(store.documents) - 1
    assert info["sentences"] == len(kept) == len(store.sentences) - 1
    assert info["bases"] == sum(map(len, kept))
    assert info["skipped_sentences"] == sum(len(d.ends) for d in drawn) - len(kept)
    assert info["skipped_bases"] == sum(len(d.interval) for d in drawn) - info["bases"]
    assert (info["skipped_sentences"] > 0) == (max_n < 1)
    assert (
        info["tokens"]
        == len(store.tokens)
        == sum(len(tokenizer.encode(s)) for s in kept)
    )
    assert (np.diff(store.sentences) > 0).all() and (np.diff(store.documents) > 0).all()


def test_a_store_of_segments_says_which_bases(
    tmp_path: Path, reference: Reference, tokenizer: DnaTokenizer
) -> None:
    segments = [Interval("a", 0, 2000), Interval("a", 5000, 9000), Interval("c", 0, 50)]
    plan = replace(PLAN, strands="both")
    info = build_store(tmp_path / "store", reference, segments, tokenizer, plan, seed=3)
    assert (info["contigs"], info["stretches"]) == (
        ["a", "c"],
        ["a:1-2000", "a:5001-9000"],
    )
    store = TokenStore(tmp_path / "store", tokenizer)
    assert store.info == info
    # Each document of the other strand is the reverse complement of its segment.
    assert text(store, tokenizer) == expected_documents(
        reference, segments, plan, 3, 1.0
    )


def test_bytes_do_not_depend_on_threads(
    built: Path, tmp_path: Path, reference: Reference, tokenizer: DnaTokenizer
) -> None:
    segments = whole_contigs(reference.contigs)
    target = tmp_path / "two"
    build_store(target, reference, segments, tokenizer, PLAN, seed=3, threads=2)
    assert {path.name for path in built.iterdir()} == {*FILES, "store.json", MARKER}
    assert files(target) == files(built)


def test_two_bytes_a_token_read_only(built: Path) -> None:
    store = TokenStore(built)
    assert store.tokens.dtype == np.uint16 and store.info["dtype"] == "uint16"
    assert (built / "tokens.bin").stat().st_size == 2 * store.info["tokens"]
    with fails(ValueError):
        store.tokens[:9][0] = 1
    assert "stretches" not in store.info, "of whole contigs there is nothing to add"


def test_four_bytes_a_token_for_large_vocabularies(
    tmp_path: Path,
    reference: Reference,
    tokenizer: DnaTokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokenizer, "vocabulary", 65_537)
    build_store(
        tmp_path / "store", reference, whole_contigs({"a": 9000}), tokenizer, PLAN
    )
    store = TokenStore(tmp_path / "store")
    assert store.tokens.dtype == np.uint32
    ids = store.tokens[: store.sentences[1]]
    assert "".join(tokenizer.pieces[i] for i in ids) == tokenizer.decode(ids)


def test_no_contigs_make_an_empty_store_and_those_of_n_alone_none(
    tmp_path: Path,
    make_reference: Callable[..., Reference],
    reference: Reference,
    tokenizer: DnaTokenizer,
) -> None:
    gap = make_reference(gap="N" * 5000)
    with fails(DataError):
        build_store(
            tmp_path / "store", gap, whole_contigs(gap.contigs), tokenizer, PLAN
        )
    assert not list(tmp_path.iterdir())
    build_store(tmp_path / "store", reference, [], tokenizer, PLAN)
    store = TokenStore(tmp_path / "store", tokenizer)
    store.verify()
    assert store.info["documents"] == store.info["sentences"] == len(store.tokens) == 0
    assert store.sentences.tolist() == store.documents.tolist() == [0]


def test_an_error_on_the_way_leaves_an_older_store(
    damaged: Path, reference: Reference, tokenizer: DnaTokenizer
) -> None:
    before = files(damaged)
    contigs = {"a": 9000, "unheard-of": 9000}
    with fails(DataError):
        build_store(damaged, reference, whole_contigs(contigs), tokenizer, PLAN)
    assert files(damaged) == before
    assert [path.name for path in damaged.parent.iterdir()] == ["store"]


def test_another_tokenizer_is_refused(built: Path, tmp_path: Path) -> None:
    other = DnaTokenizer.train(["ACGT" * 20], tmp_path / "model", 12)
    with fails(DataError, built):
        TokenStore(built, other)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def garble(path: Path) -> None:
    path.write_bytes(b"hello")


@pytest.mark.parametrize("damage", [Path.unlink, cut, garble])
@pytest.mark.parametrize("name", [*FILES, "store.json"])
def test_missing_and_damaged_files(
    damaged: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(damaged / name)
    with fails(DataError, damaged):
        TokenStore(damaged)
    with fails(DataError, damaged.parent):
        TokenStore(damaged.parent)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", 2),
        ("tokens", 10**18),
        ("sentences", -1),
        ("documents", "many"),
        ("dtype", "complicated"),
        ("tokenizer_sha256", "0" * 64),
    ],
)
def test_descriptions_that_are_wrong(
    damaged: Path, tokenizer: DnaTokenizer, key: str, value: object
) -> None:
    info = json.loads((damaged / "store.json").read_text())
    (damaged / "store.json").write_text(json.dumps(info | {key: value}))
    with fails(DataError, damaged):
        TokenStore(damaged, tokenizer)
    del info[key]
    (damaged / "store.json").write_text(json.dumps(info))
    with fails(DataError, damaged):
        TokenStore(damaged, tokenizer)


@pytest.mark.parametrize("name", FILES)
def test_a_changed_bit_is_found_by_verification(damaged: Path, name: str) -> None:
    content = bytearray((damaged / name).read_bytes())
    content[len(content) * 2 // 3] ^= 1
    (damaged / name).write_bytes(content)
    store = TokenStore(damaged)
    with fails(DataError, damaged / name):
        store.verify()
