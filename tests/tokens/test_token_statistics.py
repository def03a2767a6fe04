"""The statistics of a tokenizer, against counts made by hand."""

from collections.abc import Callable

import numpy as np
import pytest

from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.sequence import Interval, Locus
from bigbird_dna.genome.splits import Segment, Split
from bigbird_dna.tokens import encode as statistics
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.encode import tokenizer_statistics


def contigs_of(reference: Reference, **splits: Split | None) -> list[Segment]:
    """Whole contigs with their splits."""
    return [Segment(Interval(name, 0, reference.contigs[name]), split) for name, split in splits.items()]


def ids_of(reference: Reference, tokenizer: DnaTokenizer, *contigs: str) -> np.ndarray:
    """Tokens of contigs, read in stretches of 1,000 bp."""
    rows = []
    for contig in contigs:
        length = reference.contigs[contig]
        for start in range(0, length, 1000):
            interval = Interval(contig, start, min(start + 1000, length))
            rows.append(tokenizer.encode(reference.fetch(interval)))
    return np.concatenate(rows)


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "CHUNK", 1000)
    monkeypatch.setattr(statistics, "BATCH_INTERVALS", 2)


def test_counts_are_those_of_the_tokens(reference: Reference, tokenizer: DnaTokenizer) -> None:
    found = tokenizer_statistics(reference, contigs_of(reference, a="train", b="test", c=None), tokenizer)
    cases = [
        (found["genome"], ("a", "b", "c"), 0 + 2000),
        (found["splits"]["train"], ("a",), 0),
        (found["splits"]["test"], ("b",), 2000),
        (found["contigs"]["c"], ("c",), 0),
    ]
    for values, contigs, gap in cases:
        ids = ids_of(reference, tokenizer, *contigs)
        is_base = np.isin(ids, tokenizer.base_ids)
        bases = sum(reference.contigs[contig] for contig in contigs) - gap
        assert values["bases"] == bases
        assert values["n_bases"] == gap
        assert values["tokens"] == len(ids)
        assert values["n_tokens"] == (~is_base).sum()
        assert values["bases_per_token"] == pytest.approx(bases / is_base.sum(), abs=1e-4)
        assert values["unknown_rate"] == 0
    assert list(found["splits"]) == ["train", "test"]
    assert [found["contigs"][name]["split"] for name in "abc"] == ["train", "test", None]
    assert found["tokenizer_sha256"] == tokenizer.sha256
    assert found["regions"] == {}


def test_use_of_pieces(reference: Reference, tokenizer: DnaTokenizer) -> None:
    found = tokenizer_statistics(reference, contigs_of(reference, a="train"), tokenizer)
    ids = ids_of(reference, tokenizer, "a")
    assert found["pieces"]["of_bases"] == len(tokenizer.base_ids)
    assert found["pieces"]["used"] == len(np.unique(ids))
    pieces = [tokenizer.pieces[i] for i in ids]
    for length, counts in found["piece_lengths"].items():
        assert counts["tokens"] == sum(len(piece) == int(length) for piece in pieces)
    assert sum(counts["tokens"] for counts in found["piece_lengths"].values()) == len(ids)
    assert sum(counts["pieces"] for counts in found["piece_lengths"].values()) == len(tokenizer.base_ids)
    counts = list(found["frequent_pieces"].values())
    assert counts == sorted(counts, reverse=True)
    assert all(pieces.count(piece) == n for piece, n in found["frequent_pieces"].items())
    assert counts[0] == np.bincount(ids).max()


def test_promoters_are_read_on_their_strand(
    make_reference: Callable[..., Reference], tokenizer: DnaTokenizer
) -> None:
    rng = np.random.default_rng(5)
    sequence = "".join(rng.choice(list("ACGT"), 3000))
    reference = make_reference(a=sequence)
    loci = [
        Locus("a", 1000, "+", "plus"),
        Locus("a", 2000, "-", "minus"),
        Locus("a", 499, "+", "leaves the contig"),
        Locus("elsewhere", 1000, "+", "on no contig of the reference"),
    ]
    found = tokenizer_statistics(reference, contigs_of(reference, a="train"), tokenizer, promoters=loci)
    region = found["regions"]["promoters"]
    assert (region["loci"], region["left_out"]) == (2, 2)
    assert region["bases"] == 2000
    complement = sequence[1501:2501][::-1].translate(str.maketrans("ACGT", "TGCA"))
    tokens = len(tokenizer.encode(sequence[500:1500])) + len(tokenizer.encode(complement))
    assert region["tokens"] == tokens


def test_without_bases_there_is_no_ratio(
    make_reference: Callable[..., Reference], tokenizer: DnaTokenizer
) -> None:
    reference = make_reference(gap="N" * 60, a="A")
    found = tokenizer_statistics(
        reference, contigs_of(reference, gap="train", a="test"), tokenizer, promoters=[]
    )
    assert found["splits"]["train"]["bases_per_token"] is None
    assert found["splits"]["train"]["n_tokens"] == 10
    assert found["splits"]["test"]["bases_per_token"] == 1
    assert found["regions"]["promoters"]["bases_per_token"] is None
    assert found["regions"]["promoters"]["unknown_rate"] is None


def test_a_contig_that_is_divided_counts_by_stretch(reference: Reference, tokenizer: DnaTokenizer) -> None:
    parts = [(0, 3000, "train"), (3000, 5000, "valid"), (5000, 6000, None), (6000, 9000, "train")]
    stretches = [Segment(Interval("a", start, end), split) for start, end, split in parts]
    found = tokenizer_statistics(reference, stretches, tokenizer)
    assert {name: values["split"] for name, values in found["contigs"].items()} == {
        f"a:{start + 1}-{end}": split for start, end, split in parts
    }
    assert {name: values["bases"] for name, values in found["splits"].items()} == {
        "train": 6000,
        "valid": 2000,
    }
    whole = tokenizer_statistics(reference, contigs_of(reference, a="train"), tokenizer)
    assert found["genome"] == whole["genome"]  # all ends are those of pieces of 1,000 bp
