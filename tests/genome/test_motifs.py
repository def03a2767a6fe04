"""Matrices of known binding sites: their files, and the names of factors."""

import sys
from pathlib import Path

import pytest

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.motifs import (
    KnownMotif,
    factor_key,
    jaspar_motifs,
    motifs_of_factor,
    read_motifs,
)
from tests.golden.messages import fails

FILE = """\
>MA0001.1 ABC1
A  [ 8 0 1 5 ]
C  [ 1 9 1 5 ]
G  [ 1 1 0 5 ]
T  [ 0 0 8 5 ]
>MA0002.1\tFOS::JUN
1 2 3 4 5
5 4 3 2 1
0 0 9 0 0
1 1 1 1 1
"""


@pytest.fixture
def known(tmp_path: Path) -> tuple[KnownMotif, ...]:
    (tmp_path / "motifs.txt").write_text(FILE)
    return read_motifs(tmp_path / "motifs.txt")


def test_names_of_factors() -> None:
    names = (
        "Abf1",
        "c-Jun",
        "eGFP-JunB",
        "CTCF_(C-20)",
        "RORA(var.2)",
        "NKX2-5",
        "PU.1",
        "()",
    )
    expected = ["ABF1", "JUN", "JUNB", "CTCF", "RORA", "NKX25", "SPI1", ""]
    assert [*map(factor_key, names)] == expected


def test_a_factor_has_its_own_matrices_or_those_of_its_complexes(
    known: tuple[KnownMotif, ...],
) -> None:
    own = KnownMotif("Jun", "own", known[0].counts)
    assert motifs_of_factor("JUN", known) == (known[1],)
    assert motifs_of_factor("c-Jun", (*known, own)) == (own,)
    assert motifs_of_factor("Pol2", known) == motifs_of_factor("-", known) == ()


@pytest.mark.parametrize(
    "text",
    [
        *("", "hello\n", ">MA1 X\nA [ 1 ]\nC [ 1 ]\nG [ 1 ]\n"),
        *(
            f">MA1 X\nA [ {counts} ]\nC [ {others} ]\nG [ {others} ]\nT [ {others} ]\n"
            for counts, others in (
                ("1 2", 1),
                (0, 0),
                ("nan", 0),
                (-1, 0),
                ("1 x", "1 1"),
            )
        ),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "motifs.txt").write_text(text)
    with fails(DataError):
        read_motifs(tmp_path / "motifs.txt")


def test_jaspar_s_matrices_are_those_of_their_factors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched, fails(UsageError):
        patched.setitem(sys.modules, "pyjaspar", None)
        jaspar_motifs("fungi")
    pytest.importorskip("pyjaspar", reason="pip install 'bigbird-dna[motifs]'")
    (motif,) = motifs_of_factor("Ume6", jaspar_motifs("fungi"))
    assert motif.matrix == "MA0412.3"
    assert "TAGCCGCCGA" in "".join("ACGT"[base] for base in motif.counts.argmax(axis=1))


def test_ninety_of_the_yeast_factors_have_a_matrix(shared_data: Path) -> None:
    pytest.importorskip("pyjaspar")
    names = (path.name for path in (shared_data / "yeast/peaks").iterdir())
    factors = {name.split("_")[1 if name[0].isdigit() else 0].upper() for name in names}
    known = jaspar_motifs("fungi")
    assert len(factors) == 381
    assert sum(bool(motifs_of_factor(factor, known)) for factor in factors) == 90
