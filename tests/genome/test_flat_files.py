"""A GenBank or EMBL file gives the same reference as FASTA with its sequences, or is refused."""

import gzip
import tracemalloc
from pathlib import Path

import pysam
import pytest
from Bio import SeqIO
from Bio.Seq import Seq
from Bio.SeqFeature import SeqFeature, SimpleLocation
from Bio.SeqRecord import SeqRecord

from bigbird_dna.errors import DataError
from bigbird_dna.genome.flat_files import flat_format, stream_flat_file
from bigbird_dna.genome.reference import Prepared, Reference, prepare_reference
from tests.golden.messages import fails

SEQUENCES = {"NC_001133.9": "acgttgcaRYn" * 31, "CM000664.2": "GATTACA" * 60, "X5.1": "n"}

GENBANK = """\
LOCUS       NC_001133                 75 bp    DNA     linear   CON 23-JUL-2024
DEFINITION  Saccharomyces cerevisiae S288C chromosome I, complete sequence.
ACCESSION   NC_001133
VERSION     NC_001133.9
DBLINK      BioProject: PRJNA128
KEYWORDS    RefSeq.
SOURCE      Saccharomyces cerevisiae S288C
  ORGANISM  Saccharomyces cerevisiae S288C
            Eukaryota; Fungi.
REFERENCE   1  (bases 1 to 75)
  AUTHORS   Engel,S.R. and Cherry,J.M.
  TITLE     New genome
  JOURNAL   Database (Oxford) 2013, BAT012 (2013)
COMMENT     REVIEWED REFSEQ: This record has been curated by SGD.
            LOCUS       is not the start of a line here.
FEATURES             Location/Qualifiers
     source          1..75
                     /organism="Saccharomyces cerevisiae S288C"
     CDS             complement(join(7..20,31..>40))
                     /product="a//b"
                     /translation="MVKLTSIAAGVAAIAATASATTTLAQSDERVNLVELGVYVSDIRA
                     HLAQYYMFQAAHPTETYPVEVAEAVFNYGDFTTMLTGIAPDQVTRMITGVPWYSSR"
CONTIG      join(BK006935.2:1..75)
ORIGIN
        1 ccacaccaca cccacacacc cacacaccac accacacacc acaccacacc cacacacaca
       61 catyctaaca ctacc
//

LOCUS       AC1                       12 bp    DNA     circular BCT 01-JAN-2001
DEFINITION  .
ACCESSION   AC1
FEATURES             Location/Qualifiers
ORIGIN
        1 acgtacgtac gt
//
LOCUS       contig_3                   5 bp    DNA     linear       01-JAN-2001
DEFINITION  an annotator's own.
ACCESSION
VERSION     .
FEATURES             Location/Qualifiers
BASE COUNT        2 a      1 c      1 g      1 t
ORIGIN
        1 acgta
//
"""

EMBL = """\
ID   BK006935; SV 2; linear; genomic DNA; STD; FUN; 75 BP.
XX
AC   BK006935; AACE02000000;
XX
DE   TPA_inf: Saccharomyces cerevisiae S288C chromosome I, complete sequence.
XX
RN   [1]
RP   1-75
RA   Goffeau A.;
RT   "Life with 6000 genes";
RL   Science 274(5287):546-546(1996).
XX
FH   Key             Location/Qualifiers
FH
FT   source          1..75
FT                   /organism="Saccharomyces cerevisiae S288C"
XX
SQ   Sequence 75 BP; 26 A; 36 C; 1 G; 11 T; 1 other;
     ccacaccaca cccacacacc cacacaccac accacacacc acaccacacc cacacacaca        60
     catyctaaca ctacc                                                         75
//
ID   SC10H5     standard; DNA; PRO; 12 BP.
XX
AC   AL031232;
XX
SV   AL031232.7
XX
DE   old
XX
SQ   Sequence 12 BP;
     acgtacgtac gt                                                            12
//
"""

START = "CCACACCACACCCACACACCCACACACCACACCACACACCACACCACACCCACACACACACATNCTAACACTACC"


def seq_records() -> list[SeqRecord]:
    records = []
    for name, sequence in SEQUENCES.items():
        record = SeqRecord(Seq(sequence), name, name.partition(".")[0], "made for a test")
        record.annotations["molecule_type"] = "DNA"
        record.features = [SeqFeature(SimpleLocation(0, 1), type="gene")]
        records.append(record)
    return records


def prepared(source: Path, output: Path) -> tuple[Prepared, list[bytes]]:
    found = prepare_reference(source, output)
    return found, [output.with_name(output.name + end).read_bytes() for end in ("", ".fai", ".gzi")]


@pytest.mark.parametrize("compressed", ["plain", "gzip", "bgzip"])
@pytest.mark.parametrize("name", ["x.gb", "x.embl", "x.txt"])
def test_the_reference_is_that_of_fasta(tmp_path, name, compressed):
    fasta, source = tmp_path / "x.fa", tmp_path / name
    SeqIO.write(seq_records(), fasta, "fasta")
    SeqIO.write(seq_records(), source, "embl" if name == "x.embl" else "genbank")
    if compressed == "gzip":
        source.write_bytes(gzip.compress(source.read_bytes()))
    elif compressed == "bgzip":
        pysam.tabix_compress(str(source), str(tmp_path / "packed"))
        source = tmp_path / "packed"
    expected = prepared(fasta, tmp_path / "1.fa.gz")
    assert prepared(source, tmp_path / "2.fa.gz") == expected
    assert expected[0].contigs == {name: len(text) for name, text in SEQUENCES.items()}
    assert expected[0].ambiguous == 62


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\n\n"])
@pytest.mark.parametrize(
    ("text", "flat", "names"),
    [(GENBANK, "GenBank", ["NC_001133.9", "AC1", "contig_3"]), (EMBL, "EMBL", ["BK006935.2", "AL031232.7"])],
)
def test_records_as_the_archives_write_them(tmp_path, text, flat, names, start, newline):
    path = tmp_path / "x"
    path.write_text(start + text, newline=newline)
    assert flat_format(path) == flat
    chunks = list(stream_flat_file(path, flat, 10_000))
    assert [chunk.contig for chunk in chunks] == names
    assert [chunk.sequence for chunk in chunks] == [START, "ACGTACGTACGT", "ACGTA"][: len(names)]
    assert [chunk.ambiguous for chunk in chunks] == [1, 0, 0][: len(names)]


@pytest.mark.parametrize("size", [1, 7, 75, 76])
def test_chunks_cut_the_sequence_anywhere(tmp_path, size):
    path = tmp_path / "x.gb"
    path.write_text(GENBANK)
    chunks = [c for c in stream_flat_file(path, "GenBank", size) if c.contig == "NC_001133.9"]
    assert "".join(chunk.sequence for chunk in chunks) == START
    assert [chunk.start for chunk in chunks] == list(range(0, 75, size))
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


@pytest.mark.parametrize("text", [">LOCUS       x\nACGT\n", "ID\tx\n", "LOCUS\tx\n", "\n\n"])
def test_other_files_are_neither(tmp_path, text):
    path = tmp_path / "x.gb"
    path.write_text(text)
    assert flat_format(path) is None


NEWLINE = "\n"
MASTER = GENBANK[: GENBANK.index("ORIGIN")] + "//\n"
BROKEN = {
    "twice": (GENBANK + GENBANK, "a second record named 'NC_001133.9'"),
    "a CON record": (MASTER, "record 'NC_001133.9' has no sequence; one that only says"),
    "empty": (
        GENBANK.replace("   12 bp", "    0 bp").replace("        1 acgtacgtac gt\n", ""),
        "record 'AC1' has no sequence",
    ),
    "protein": (
        GENBANK.replace("1 acgta\n", "1 mkvla\n"),
        "record 'contig_3', position 4: 'L' is not a DNA letter (is this a protein?)",
    ),
    "RNA": (
        GENBANK.replace("1 acgta\n", "1 acgua\n"),
        "record 'contig_3', position 4: 'U' is not a DNA letter (is this RNA?)",
    ),
    "a line lost": (
        GENBANK.replace("       61 catyctaaca ctacc\n", ""),
        "line 26: can't be read as GenBank: Expected sequence length 75, found 60 (NC_001133.9).",
    ),
    "cut in the sequence": (GENBANK[:-20], "Premature end of file"),
    "cut in the features": (GENBANK[: GENBANK.index("CDS")], "Premature end"),
    "the first line alone": (GENBANK.split("\n")[0], "Premature end"),
    "a first line of another kind": ("LOCUS       a b c\n", "Did not recognise the LOCUS line"),
    "no name": (GENBANK.replace("LOCUS       contig_3", "LOCUS               "), "has no name"),
    "FASTA behind it": (
        GENBANK + ">a\nACGT\n",
        f"line {GENBANK.count(NEWLINE) + 1}: text between records: '>a'",
    ),
    "cut EMBL": (EMBL[:-20], f"line {EMBL.count(NEWLINE) - 1}: can't be read as EMBL: Premature end"),
    "UniProt": ("ID   TPA_HUMAN   Reviewed;   562 AA.\nAC   P00750;\n//\n", "read as EMBL"),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_gives_one_clear_line(tmp_path, text, message):
    source, output = tmp_path / "x.gb", tmp_path / "out" / "x.fa.gz"
    source.write_text(text)
    with pytest.raises(DataError) as caught:
        prepare_reference(source, output)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{source}: ")
    assert "\n" not in str(caught.value)
    assert list(output.parent.iterdir()) == []


def test_a_cut_stream_is_refused(tmp_path):
    path = tmp_path / "x.gb.gz"
    path.write_bytes(gzip.compress(GENBANK.encode())[:-20])
    with fails(DataError):
        prepare_reference(path, tmp_path / "x.fa.gz")


def test_random_access_asks_for_a_prepared_copy(tmp_path):
    path = tmp_path / "x.embl"
    path.write_text(EMBL)
    with fails(DataError):
        Reference(path)


def test_memory_is_that_of_a_record(tmp_path):
    path, letters = tmp_path / "x.gb", "acgttgcaat " * 6
    with path.open("w") as stream:
        for number in range(20):
            stream.write(f"LOCUS       c{number} 120000 bp DNA linear CON 01-JAN-2001\nORIGIN\n")
            stream.writelines(f"{1 + 60 * line:9} {letters}\n" for line in range(2000))
            stream.write("//\n")
    next(stream_flat_file(path, "GenBank", 100))  # its imports
    tracemalloc.start()
    bases = sum(len(chunk.sequence) for chunk in stream_flat_file(path, "GenBank", 10_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert bases == 2_400_000
    assert peak < 1_500_000
