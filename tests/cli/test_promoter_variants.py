"""`score-variants` with a promoter model: a VCF and a table, against the model's own method."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pysam
import pytest

import bigbird_dna
from bigbird_dna.genome.reference import Reference
from tests.cli.command import Run, refused
from tests.test_front_doors import home as home

OWN = ("PROMOTER_REF", "PROMOTER_ALT", "PROMOTER_DELTA", "PROMOTER_SITE", "PROMOTER_STRAND")


@pytest.fixture(scope="module")
def vcf(home: Path) -> Path:
    """An SNV with two ALTs, a deletion, an insertion, and what can't be scored."""
    path = home / "several.vcf"
    with Reference(home / "genome.fa.gz") as genome:
        from bigbird_dna.genome.sequence import Interval

        bases = genome.fetch(Interval("a", 0, 900))
    others = [base for base in "ACGT" if base != bases[299]]
    rows = [
        (300, bases[299], f"{others[0]},{others[1]}"),
        (400, bases[399:403], bases[399]),
        (500, bases[499], f"{bases[499]}GATTACA,<DEL>"),
        (600, others[0] + "GGGGG", "A"),
    ]
    lines = [f"a\t{pos}\tid{pos}\t{ref}\t{alt}\t9\tPASS\tDP=3\n" for pos, ref, alt in rows]
    header = '##fileformat=VCFv4.2\n##contig=<ID=a>\n##INFO=<ID=DP,Number=1,Type=Integer,Description="d">\n'
    header += '##FILTER=<ID=PASS,Description="p">\n'
    path.write_text(header + "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n" + "".join(lines))
    return path


def test_a_vcf_and_a_table_say_what_the_method_says(run: Run, home: Path, vcf: Path, tmp_path: Path) -> None:
    genome = home / "genome.fa.gz"
    outputs = tmp_path / "x.vcf.gz", tmp_path / "x.tsv"
    for output in outputs:
        result = run("score-variants", home / "promoter", vcf, "--reference", genome, "-o", output)
        assert result.code == 0 and "4 records: 4 alternative alleles scored, 2 not" in result.err
    model: Any = bigbird_dna.load(home / "promoter")
    expected = model.variant_effects(vcf, genome)
    found = pd.read_csv(outputs[1], sep="\t", skiprows=3)
    columns = ["#contig", "position", "ref", "alt", "id", "note"]
    assert list(found.columns) == [*columns, "ref_score", "alt_score", "delta", "site", "strand"]
    assert (
        found["note"].tolist()
        == expected["note"].tolist()
        == [".", ".", ".", ".", "SYMBOLIC", "REF_MISMATCH"]
    )
    for name in ("ref_score", "alt_score", "delta"):
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-5, atol=1e-9)
    assert found["site"][:4].tolist() == expected["site"][:4].tolist()
    assert found["strand"][:4].tolist() == expected["strand"][:4].tolist()

    with pysam.VariantFile(str(outputs[0])) as written:
        assert set(OWN) | {"NOTE"} == {key[4:] for key in written.header.info if key.startswith("BBD_")}
        records = list(written)
    rows = [row for record in records for row in zip(*(_values(record, key) for key in OWN), strict=True)]
    assert len(rows) == 6 and rows[4:] == [(None,) * 5] * 2
    for row, wanted in zip(rows[:4], expected.itertuples(), strict=False):
        assert row[3:] == (wanted.site, wanted.strand)
        np.testing.assert_allclose(row[:3], [wanted.ref_score, wanted.alt_score, wanted.delta], rtol=2e-5)
    assert [record.info["DP"] for record in records] == [3] * 4
    assert Path(f"{outputs[0]}.tbi").exists()


def _values(record: Any, key: str) -> tuple[Any, ...]:
    values = record.info.get(f"BBD_{key}", (None,) * len(record.alts))
    return tuple(None if value == "." else value for value in values)


def test_sites_and_stride_are_kept_to(run: Run, home: Path, vcf: Path, tmp_path: Path) -> None:
    genome, output = home / "genome.fa.gz", tmp_path / "x.tsv"
    words = ("score-variants", home / "promoter", vcf, "--reference", genome, "-o", output)
    (tmp_path / "sites.bed").write_text(
        "a\t290\t310\tx\t0\t-\na\t490\t491\nnowhere\t4\t5\na\t899\t901\na\t2000\t2001\n"
    )
    result = run(*words, "--tss", tmp_path / "sites.bed")
    assert result.code == 0
    off = f"warning: {tmp_path / 'sites.bed'}: "
    assert f"{off}1 sites on contigs that {genome} has not got (nowhere)" in result.err
    assert f"{off}2 sites reach beyond their contigs in {genome} (a)" in result.err
    lines = output.read_text().splitlines()
    assert "--tss" in lines[2] and "--stride" not in lines[2] and "--offsets" not in lines[2]
    found = pd.read_csv(output, sep="\t", skiprows=3)
    assert found["note"].tolist() == [".", ".", "NO_SITE", ".", "SYMBOLIC", "REF_MISMATCH"]
    assert found["site"][:2].tolist() == [310, 310] and found["strand"][:2].tolist() == ["-", "-"]
    assert found["site"][3] == 491
    assert run(*words, "--stride", 1).code == 0
    close = pd.read_csv(output, sep="\t", skiprows=3)
    assert run(*words).code == 0
    wide = pd.read_csv(output, sep="\t", skiprows=3)
    assert (close["delta"].abs() >= wide["delta"].abs() - 1e-9)[:4].all()
    for text, named in (("q\t290\t310\n", "(q)"), ("a\t290\t310\tx\t0\tx\n", "line 1"), ("a\t1\t2000\n", "")):
        (tmp_path / "sites.bed").write_text(text)
        refused(run(*words, "--tss", tmp_path / "sites.bed"), 1, "sites.bed", named, after_log=True)
