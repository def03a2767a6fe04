"""Motifs of contributions: their matches, the recovery of known matrices, files, and what is refused."""

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from Bio import motifs as bio
from numpy.typing import NDArray

from bigbird_dna.explanation.motifs import (
    _MEME,
    IUPAC,
    consensus,
    find_motifs,
    meme_text,
    read_array,
)
from bigbird_dna.genome.motifs import KnownMotif
from bigbird_dna.genome.sequence import reverse_complement
from tests.cli.command import Run, refused
from tests.explanation.models import write_explained

WORDS = {"Reb1": "TTACCCGG", "Cbf1": "GTCACGTGAC", "Ume6": "TAGCCGCCGA"}


def frequencies(word: str) -> NDArray[np.float64]:
    return np.where(np.array(list(word))[:, None] == list("ACGT"), 0.97, 0.01)


def matrices(words: dict[str, str] = WORDS, others: int = 30) -> list[KnownMotif]:
    """A matrix of each word, and random ones."""
    rng = np.random.default_rng(3)
    own = [
        KnownMotif(name.upper(), f"MA{name}", 100 * frequencies(word))
        for name, word in words.items()
    ]
    drawn = (100 * rng.dirichlet([0.4] * 4, size=9) for _ in range(others))
    return own + [
        KnownMotif(f"other{number}", f"MX{number}", counts)
        for number, counts in enumerate(drawn)
    ]


def test_consensus_has_iupac_letters() -> None:
    from Bio.Data.IUPACData import ambiguous_dna_values

    for letter, bases in ambiguous_dna_values.items():
        if letter != "X":
            row = np.array([[base in bases for base in "ACGT"]]) / len(bases)
            assert consensus(row) == letter
            assert IUPAC.index(letter) == sum(1 << "ACGT".index(base) for base in bases)


def test_other_software_reads_the_motifs() -> None:
    texts = [_MEME]
    for name, word in WORDS.items():
        row = {"output": name, "motif": "x", "consensus": word, "seqlets": 1000}
        texts.append(meme_text(row, frequencies(word)))
    for name, read in zip(
        WORDS, bio.parse(StringIO("".join(texts)), "minimal"), strict=True
    ):
        assert read.name == f"{name}:x" and str(read.consensus) == WORDS[name]
        values = np.array([read.pwm[base] for base in "ACGT"]).T
        np.testing.assert_allclose(values, frequencies(WORDS[name]), atol=0.01)


def test_arrays_are_read(tmp_path: Path) -> None:
    write_explained(tmp_path / "one", "Reb1", "ACGTACGT", 1, 5)
    one_hot = read_array(tmp_path / "one/ohe.npz")
    assert one_hot.shape == (5, 100, 4) and (one_hot.sum(2) == 1).all()


def test_bad_input_is_refused(tmp_path: Path, run: Run) -> None:
    two = tmp_path / "two"
    write_explained(two, "Reb1", "ACGTACGT", 2, 5)
    output = ["-o", tmp_path / "out"]
    refused(run("motifs", two, "--max-q", 2, *output), 2)
    refused(
        run("motifs", tmp_path / "none", *output), 1, tmp_path / "none" / "scores.tsv"
    )
    (two / "shap.npz").write_bytes((two / "shap.npz").read_bytes()[:100])
    refused(run("motifs", two, *output), 1, two / "shap.npz")
    np.savez(two / "shap.npz", np.zeros((5, 4, 99)))
    refused(run("motifs", two, *output), 1, two / "shap.npz")
    np.savez(two / "ohe.npz", np.zeros((5, 4, 20)))
    refused(run("motifs", two, *output), 2, two)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_planted_words_are_found_and_matched(tmp_path: Path, run: Run) -> None:
    pytest.importorskip(
        "modiscolite", reason="needs modisco-lite: pip install 'bigbird-dna[explain]'"
    )
    known = "".join(
        f">{one.matrix} {one.factor}\n"
        + "".join(" ".join(f"{x:.2f}" for x in row) + "\n" for row in one.counts.T)
        for one in matrices()
    )
    (tmp_path / "known.txt").write_text(known)
    write_explained(tmp_path / "noise", "noise", "", 9)
    options = {"matrices": tmp_path / "known.txt"}
    assert find_motifs(tmp_path / "noise", tmp_path / "none", **options).empty
    for number, (name, word) in enumerate(WORDS.items()):
        write_explained(tmp_path / name, name, word, number)
        table = find_motifs(tmp_path / name, tmp_path / f"{name}-out", **options)
        first = table.iloc[0]
        turned = reverse_complement(word)
        assert word[2:-2] in first["consensus"] or turned[2:-2] in first["consensus"]
        assert first["factor"] == name.upper() and first["significant"] >= 1
