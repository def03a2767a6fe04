"""Small good files of every format of the genome, to be damaged and read; and ways to pack them."""

import gzip
import io
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pysam


def bgzip(content: bytes, level: str = "6", block: int = 3000) -> bytes:
    """A file in small blocks."""
    with tempfile.NamedTemporaryFile() as file:
        with pysam.BGZFile(file.name, f"wb{level}", None) as stream:
            for start in range(0, len(content), block):
                stream.write(content[start : start + block])
                stream.flush()
        return Path(file.name).read_bytes()


def tar(content: bytes) -> bytes:
    """An archive of one member."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as stream:
        member = tarfile.TarInfo("member")
        member.size = len(content)
        stream.addfile(member, io.BytesIO(content))
    return gzip.compress(archive.getvalue(), mtime=0)


PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bgzip": bgzip,
}

CHAIN = "chain 1000 s 200 + 10 40 t 300 - 5 37 1\n10\t5\t7\n15\n\n"
VCF_HEADER = (
    "##fileformat=VCFv4.2\n"
    '##INFO=<ID=AF,Number=A,Type=Float,Description="a, b = \u00e9">\n'
    "##contig=<ID=c,length=100>\n"
)
VCF_COLUMNS = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO"


def vcf_text(*records: str, columns: str = VCF_COLUMNS) -> str:
    return VCF_HEADER + columns + "\n" + "".join(f"{record}\n" for record in records)


def gff(
    kind: str, contig: str, start: int, end: object, strand: str, attributes: str
) -> str:
    return f"{contig}\tmade\t{kind}\t{start + 1}\t{end}\t.\t{strand}\t.\t{attributes}\n"


REPORT = (
    "# Assembly name:  R64\n"
    "# Sequence-Name\tSequence-Role\tAssigned-Molecule\tAssigned-Molecule-Location/Type\tGenBank-Accn\t"
    "Relationship\tRefSeq-Accn\tAssembly-Unit\tSequence-Length\tUCSC-style-name\r\n"
    "I\tassembled-molecule\tI\tChromosome\tBK006935.2\t=\tNC_001133.9\tPrimary\t230218\tchrI\r\n"
    "s1\tunplaced-scaffold\tI\tChromosome\tKB1.1\t<>\tNW_1.1\tPrimary\t77\tna\r\n"
    "s2\tunplaced-scaffold\tna\tna\tKB2.1\t<>\tna\tPrimary\t78\tna\r\n"
)


SUPPLEMENT = """Cell Type\tTF/DNase/HistoneMark\tTreatment\tFile accession\tAUC\tAUPRC\tAUPRC Baseline
8988T\tDNase\tNone\ta.narrowPeak\t0,91\t0,40\t0,039
K562\tHNF4A\tNone\tb.narrowPeak\t0,98\t0,05\t8,79E-06
K562\tBRF1\tNone\tc.narrowPeak\tNA (No positive in Test region)\t0\t0
Monocytes-CD14+RO01746 \tH2AZ\tNone\td.narrowPeak\t0,88\t0,58\t0,089
K562\tH3K4me3\tNone\te.narrowPeak\t0,9\t0,58\t0,068
K562\tH3K4me3\tNone\tf.narrowPeak\t0,8\t0,58\t0,068
"""
