"""Motifs of contributions: their matches, the recovery of known matrices, files, and what is refused."""

from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from Bio import motifs as bio
from numpy.typing import NDArray

from bigbird_dna.explanation.motifs import (
    IUPAC,
    Motif,
    find_motifs,
    meme_text,
    read_explained,
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


def motif(output: str, word: str) -> Motif:
    values = frequencies(word)
    return Motif("increases-1", output, "increases", 1000, values, values - 0.25)


def test_consensus_has_iupac_letters() -> None:
    from Bio.Data.IUPACData import ambiguous_dna_values

    for letter, bases in ambiguous_dna_values.items():
        if letter != "X":
            row = np.array([[base in bases for base in "ACGT"]]) / len(bases)
            assert motif("x", "A")._replace(frequencies=row).consensus == letter
            assert IUPAC.index(letter) == sum(1 << "ACGT".index(base) for base in bases)


def test_other_software_reads_the_motifs() -> None:
    found = [motif(output, word) for output, word in WORDS.items()]
    for expected, read in zip(
        found, bio.parse(StringIO(meme_text(found)), "minimal"), strict=True
    ):
        assert (
            read.name == f"{expected.output}:increases-1"
            and str(read.consensus) == expected.consensus
        )
        values = np.array([read.pwm[base] for base in "ACGT"]).T
        np.testing.assert_allclose(values, expected.frequencies, atol=0.01)


def test_arrays_are_read_by_output(tmp_path: Path) -> None:
    write_explained(tmp_path / "one", "Reb1", "ACGTACGT", 1, 5)
    one_hot, contributions = read_explained([tmp_path / "one"])["Reb1"]
    assert one_hot.shape == contributions.shape == (5, 100, 4)
    assert (one_hot.sum(2) == 1).all()


def test_bad_input_is_refused(tmp_path: Path, run: Run) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write_explained(one, "Reb1", "ACGTACGT", 1, 5)
    write_explained(two, "Reb1", "ACGTACGT", 2, 5)
    output = ["-o", tmp_path / "out"]
    refused(run("motifs", one, two, *output), 2, two)
    refused(run("motifs", one, "--max-q", 2, *output), 2)
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
    for number, (name, word) in enumerate(WORDS.items()):
        write_explained(tmp_path / name, name, word, number)
    write_explained(tmp_path / "noise", "noise", "", 9)
    given = [tmp_path / name for name in (*WORDS, "noise")]
    counts = find_motifs(given, tmp_path / "out", matrices=tmp_path / "known.txt")
    assert counts.outputs == 4 and counts.matched >= 3
    table = pd.read_csv(
        tmp_path / "out" / "motifs.tsv", sep="\t", keep_default_na=False
    )
    assert "noise" not in set(table["output"])
    for name, word in WORDS.items():
        found = table[table["output"] == name].iloc[0]
        turned = reverse_complement(word)
        assert word[2:-2] in found["consensus"] or turned[2:-2] in found["consensus"]
    assert set(
        pd.read_csv(tmp_path / "out" / "matches.tsv", sep="\t", keep_default_na=False)[
            "factor"
        ]
    ) >= {
        "REB1",
        "CBF1",
        "UME6",
    }
