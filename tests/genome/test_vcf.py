"""VCF as text: what is kept, what is refused with its line."""

import gzip
from pathlib import Path

import pysam
import pytest

from bigbird_dna.errors import DataError
from bigbird_dna.genome.vcf import VcfRecord, VcfSummary, open_vcf, scan_vcf
from tests.genome.formats import VCF_COLUMNS as COLUMNS
from tests.genome.formats import vcf_text
from tests.golden.messages import fails
from tests.toys import written

RECORDS = (
    "c\t5\trs1;rs2\tA\tC,<DEL>,*\t10.50\tq10;s50\tAF=0.5,.;DB",
    "c\t07\t.\tac\tG]c:9]\t.\t.\t.",
    "HLA:1\t0\t.\tN\t.\t.\tPASS\tAF=1",
)


def read(path: Path) -> tuple[tuple[str, ...], str, list[VcfRecord]]:
    with open_vcf(path) as vcf:
        return vcf.meta, vcf.column_line, list(vcf.records)


def test_every_line_and_column_is_kept(tmp_path: Path) -> None:
    text = vcf_text(*RECORDS)
    meta, columns, records = read(written(tmp_path / "x.vcf", text))
    lines = [*meta, columns, *("\t".join(record.columns) for record in records)]
    assert "".join(f"{line}\n" for line in lines) == text
    assert [record.rest for record in records] == ["", "", ""]
    first, second, third = records
    assert first[:5] == (5, "c", 4, "A", ("C", "<DEL>", "*"))
    assert second[:5] == (6, "c", 6, "ac", ("G]c:9]",))
    assert third[:5] == (7, "HLA:1", -1, "N", (".",))


def test_genotypes_are_kept(tmp_path: Path) -> None:
    text = vcf_text("c\t5\t.\tA\tC\t.\t.\t.\tGT:DP\t0|1:3\t./.", columns=f"{COLUMNS}\tFORMAT\ta\tb")
    _, columns, (record,) = read(written(tmp_path / "x.vcf", text))
    assert record.rest == "GT:DP\t0|1:3\t./."
    assert columns.endswith("INFO\tFORMAT\ta\tb")


def test_the_ways_a_file_may_be_packed(tmp_path: Path) -> None:
    plain = written(tmp_path / "x.vcf", vcf_text(*RECORDS))
    expected = read(plain)
    packed, blocked, windows = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    pysam.tabix_compress(str(plain), str(blocked))
    windows.write_bytes(plain.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert read(packed) == read(blocked) == read(windows) == expected
    marked = b"\xef\xbb\xbf" + plain.read_bytes()
    for path, content in ((windows, marked), (packed, gzip.compress(marked))):
        path.write_bytes(content)
        assert read(path) == expected
    windows.write_bytes(marked)
    pysam.tabix_compress(str(windows), str(blocked), force=True)
    assert read(blocked) == expected


def test_bytes_that_are_no_utf8_survive(tmp_path: Path) -> None:
    path = written(tmp_path / "x.vcf", vcf_text(*RECORDS).encode("latin-1"))
    meta, _, _ = read(path)
    assert meta[1].encode("utf-8", "surrogateescape") == path.read_bytes().splitlines()[1]


GOOD = "c\t5\t.\tA\tC\t.\t.\t."


def test_bcf_is_refused(tmp_path: Path) -> None:
    source, path = written(tmp_path / "x.vcf", vcf_text(GOOD)), tmp_path / "x.bcf"
    with pysam.VariantFile(str(source)) as vcf, pysam.VariantFile(str(path), "wb", header=vcf.header):
        pass
    with fails(DataError):
        scan_vcf(path)


@pytest.mark.parametrize(
    ("places", "is_sorted"),
    [
        ("", True),
        ("a1", True),
        ("a1 a1 a2 b1 c7", True),
        ("b9 a1", True),
        ("a2 a1", False),
        ("a1 b1 a2", False),
    ],
)
def test_whether_a_file_is_sorted(tmp_path: Path, places: str, is_sorted: bool) -> None:
    records = [f"{place[0]}\t{place[1:]}\t.\tACG\tA\t.\t.\t." for place in places.split()]
    furthest = max([int(place[1:]) + 2 for place in places.split()], default=0)
    found = scan_vcf(written(tmp_path / "x.vcf", vcf_text(*records)))
    contigs = tuple(dict.fromkeys(place[0] for place in places.split()))
    assert found == VcfSummary(len(records), is_sorted, furthest, contigs)


def test_agrees_with_htslib_on_real_variants(shared_data: Path) -> None:
    path = shared_data / "hg19" / "chr22_17442913-17680545.1000G_sites.vcf.gz"
    _, _, records = read(path)
    assert scan_vcf(path) == VcfSummary(2185, True, 17680545, ("22",))
    with pysam.VariantFile(str(path)) as vcf:
        for record, other in zip(records, vcf, strict=True):
            assert record[1:5] == (other.contig, other.start, other.ref, other.alts)
