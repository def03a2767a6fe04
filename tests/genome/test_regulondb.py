"""RegulonDB's promoters: their positions, which are right where the sequences disagree."""

from pathlib import Path

from bigbird_dna.disk.compression import read_lines
from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.promoters import read_promoters
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import Locus, window_around
from tests.golden.messages import fails

GOOD = """# Copies and Copyright-Notice
# Genome version: U00096.3, Refseq version: c; GI:556503834
ECK1\trrnHp1\tforward\t0\tSigma70\t\t[HIPP|W|Human]\tWeak
ECK2\tp2 (cluster)\tforward\t8\tSigma70\taaaCaaa\t[TIM]\tStrong

ECK3\tp3\treverse\t3\tSigma70\taaaCaaa\t[TIM]\tStrong
"""


def test_positions_are_counted_from_1(tmp_path: Path) -> None:
    path = tmp_path / "PromoterSet.txt"
    path.write_text(GOOD)
    assert read_promoters(path) == [
        Locus("c", 7, "+", "p2 (cluster)"),
        Locus("c", 2, "-", "p3"),
    ]
    for text, *named in (
        (GOOD.replace("Refseq", "RefSeq"), "line 3", "Refseq version"),
        (GOOD.replace("reverse", "both"), "line 6", "'both'"),
        (GOOD.replace("\tforward\t8", ""), "line 4"),
        (GOOD.replace("forward\t8", "forward\tx"), "line 4", "'x'"),
        (GOOD.replace("forward\t8", "forward"), "line 4"),
    ):
        path.write_text(text)
        with fails(DataError, path, *named):
            read_promoters(path)


def test_positions_of_the_published_file_are_right(
    shared_data: Path, tmp_path: Path
) -> None:
    """Where sequences are displaced, more start sites begin with A or G after C or T at the positions."""
    reference = tmp_path / "genome.fa.gz"
    assembly = load_assembly("ASM584v2")
    genome = next((shared_data / "ecoli").glob("*.fna.gz"))
    prepare_reference(genome, reference, assembly)
    path = shared_data / "ecoli/RegulonDB_PromoterSet.txt.gz"
    sequences = {}
    for _, line in read_lines(path):
        if not line.startswith("#"):
            _, name, _, position, _, text, *_ = line.split("\t")
            sequences[name, position] = text

    displaced, at_position, in_sequence = 0, 0, 0
    with Reference(reference) as opened:
        for locus in read_promoters(path):
            text = sequences[locus.name, str(locus.position + 1)]
            start = next(i for i, base in enumerate(text) if base.isupper())
            window = window_around(locus, start + 1, len(text) - start)
            bases = opened.fetch(window)  # from one base before
            if locus.strand == "-" and bases.startswith(text.upper()):
                displaced += 1
                at_position += bases[start] in "CT" and bases[start + 1] in "AG"
                in_sequence += bases[start - 1] in "CT" and bases[start] in "AG"

    assert displaced == 2_465
    assert at_position > 1.5 * in_sequence
