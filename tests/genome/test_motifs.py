"""Matrices of known binding sites and their files."""

import sys
from pathlib import Path

import pytest

from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.motifs import (
    jaspar_motifs,
    read_motifs,
)
from tests.golden.messages import fails


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


def test_jaspar_has_matrices_of_factors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched, fails(UsageError):
        patched.setitem(sys.modules, "pyjaspar", None)
        jaspar_motifs("fungi")
    pytest.importorskip("pyjaspar", reason="pip install 'bigbird-dna[motifs]'")
    (motif,) = [one for one in jaspar_motifs("fungi") if one.factor == "UME6"]
    assert motif.matrix == "MA0412.3"
    assert "TAGCCGCCGA" in "".join("ACGT"[base] for base in motif.counts.argmax(axis=1))
