"""`prepare random-variants`: what is drawn for which variant, and from where."""

from collections import defaultdict
from pathlib import Path

import pysam
import pytest

from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.variants import Change, find_change
from tests.cli.command import Run, refused, silent, table
from tests.toys import VCF, random_dna

CONTIGS = {
    "one": random_dna(900, 5),
    "gap": random_dna(70, 6) + "N" * 60 + random_dna(70, 7),
}
WITHIN = 90


@pytest.fixture
def run(run: Run) -> Run:
    return silent(run)


@pytest.fixture
def genome(tmp_path: Path) -> Path:
    write_fasta(tmp_path / "genome.fa.gz", list(CONTIGS.items()))
    return tmp_path / "genome.fa.gz"


@pytest.fixture
def vcf(tmp_path: Path) -> Path:
    """SNVs at every base of a place, so that many draws are given ones; longer and symbolic ones."""
    one, gap = CONTIGS.values()
    other = {"A": "C", "C": "A", "G": "T", "T": "G"}
    records = [("one", at, one[at], other[one[at]]) for at in range(300, 380)]
    for at in (0, 120, 450, 899):
        records.append(("one", at, one[at], f"{one[at]}GATTACA,{other[one[at]]},<DEL>"))
    records += [
        ("one", 500, one[500:507], one[500]),
        ("one", 600, one[600:603], "ACGTTGA"),
    ]
    records += [
        ("gap", 131, gap[131], f"{gap[131]}GATTACA"),
        ("gap", 69, gap[69], other[gap[69]]),
    ]
    records += [("elsewhere", 5, "A", "C"), ("one", 7, "N", "A")]
    lines = (
        f"{contig}\t{at + 1}\t.\t{ref}\t{alt}\t.\t.\t.\n"
        for contig, at, ref, alt in records
    )
    path = tmp_path / "given.vcf"
    path.write_text(VCF + "".join(lines))
    return path


def changes(reference: Path, rows: list[dict[str, str]]) -> list[list[Change]]:
    """The normal forms of the alternative alleles of each record, where they have one."""
    genome = Reference(reference)
    found = []
    for row in rows:
        contig = row["CHROM"] if row["CHROM"] in CONTIGS else None
        alts = row["ALT"].split(",")
        normal = [
            find_change(contig, int(row["POS"]) - 1, row["REF"], alt, genome)
            for alt in alts
        ]
        found.append([one for one in normal if isinstance(one, Change)])
    return found


def test_what_is_drawn(run: Run, genome: Path, vcf: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / f"{name}.vcf.gz" for name in ("a", "b", "c")]
    for output, seed in zip(outputs, (1, 1, 2), strict=True):
        words = (
            "--reference",
            genome,
            "--per-variant",
            150,
            "--within",
            WITHIN,
            "--seed",
            seed,
        )
        result = run("prepare random-variants", vcf, *words, "-o", output)
        assert (
            result.code == 0 and "fewer" in result.err
        )  # beside the given SNVs of each base
    texts = [pysam.BGZFile(str(path)).read().decode() for path in outputs]
    rows = [table(text) for text in texts]
    assert rows[0] == rows[1] != rows[2]
    with pysam.VariantFile(
        str(outputs[0])
    ) as opened:  # sorted, with an index, and contigs declared
        fetched = [record.id for contig in CONTIGS for record in opened.fetch(contig)]
    assert fetched == [row["ID"] for row in rows[0]]
    before = table(vcf.read_text())
    taken = {one for some in changes(genome, before) for one in some}
    drawn: dict[tuple[str, str], list[Change]] = defaultdict(list)
    for row, own in zip(rows[0], changes(genome, rows[0]), strict=True):
        (change,) = own  # REF is that of the reference, and ALT another
        pos, ref, alt, _ = row["ID"].split(":")
        ((of,),) = changes(
            genome, [{"CHROM": row["CHROM"], "POS": pos, "REF": ref, "ALT": alt}]
        )
        assert of in taken and change not in taken
        assert "N" not in row["REF"] + row["ALT"]
        assert (len(change.ref), len(change.alt)) == (len(of.ref), len(of.alt))
        assert abs(change.start - of.start) <= WITHIN
        if len(of.ref) == len(of.alt) == 1:
            assert (change.ref, change.alt) == (of.ref, of.alt)
        assert sorted(change.alt) == sorted(of.alt)
        drawn[row["CHROM"], row["ID"].rpartition(":")[0]].append(change)
    assert all(len(set(some)) == len(some) <= 150 for some in drawn.values())
    assert len(drawn) == 80 + 8 + 4 and max(map(len, drawn.values())) == 150


@pytest.mark.parametrize(
    "record",
    ["elsewhere\t1\t.\tA\tC", "one\t1\t.\tA\t<DEL>", "one\t1\t.\tA"],
    ids=range(3),
)
def test_nothing_to_draw(run: Run, genome: Path, tmp_path: Path, record: str) -> None:
    path, out = tmp_path / "given.vcf", tmp_path / "out.vcf"
    path.write_text(f"{VCF}{record}" + "\t.\t.\t.\n" * ("A\t" in record))
    refused(
        run("prepare random-variants", path, "--reference", genome, "-o", out),
        1,
        "given.vcf",
    )
    assert not out.exists()
    refused(
        run("prepare random-variants", path, "--reference", genome, "-o", path),
        2,
        "given.vcf",
    )
