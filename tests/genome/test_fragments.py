"""Fragments of contigs: at their own place, whatever their chunks, in little memory; other names stay."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import load_assembly, open_assembly
from bigbird_dna.genome.contig_fragments import ContigFragments, parse_fragment
from bigbird_dna.genome.fasta import scan_fasta, stream_fasta
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.genome.sequence import Interval
from tests.golden.messages import fails
from tests.toys import random_dna, written

DEMO = load_assembly("demo")


def as_fasta(records):
    return "".join(f">{name} described\n{sequence}\n" for name, sequence in records)


def named(contig, start, sequence, commas=False):
    form = "," if commas else ""
    return f"{contig}:{start + 1:{form}}-{start + len(sequence):{form}}", sequence


fragments = st.lists(
    st.tuples(st.integers(0, 150), st.integers(1, 70), st.booleans()), min_size=1, max_size=4
)


@given(
    contigs=st.lists(fragments, min_size=1, max_size=3),
    whole=st.integers(0, 3),
    size=st.integers(1, 90),
    seed=st.integers(0, 99),
)
def test_every_fragment_is_where_its_name_says(tmp_path, contigs, whole, size, seed):
    records, expected, ambiguous = [], {}, 0
    for number, gaps in enumerate(contigs):
        text = ""
        for gap, length, commas in gaps:
            text += "N" * gap
            sequence = random_dna(length, seed).replace("A", "R", 1)
            ambiguous += sequence.count("R")
            records.append(named(f"c{number}", len(text), sequence, commas))
            text += sequence.replace("R", "N")
        expected[f"c{number}"] = text
        if number == whole:
            records.append(("whole", "ACGT"))
            expected["whole"] = "ACGT"
    path = written(tmp_path / "x.fa", as_fasta(records))
    placed = ContigFragments("x.fa", DEMO)
    chunks = list(placed.place(stream_fasta(path, 17), size, lambda: scan_fasta(path)))
    found = {}
    for chunk in chunks:
        assert chunk.start == len(found.get(chunk.contig, ""))
        assert len(chunk.sequence) <= max(size, 17)
        assert chunk.contig == "whole" or chunk.last or len(chunk.sequence) == size
        found[chunk.contig] = found.get(chunk.contig, "") + chunk.sequence
    assert found == expected and list(found) == list(expected)
    assert [chunk.contig for chunk in chunks if chunk.last] == list(expected)
    assert sum(chunk.ambiguous for chunk in chunks) == ambiguous
    assert placed.contigs == {
        contig: sum(length for _, length, _ in gaps)
        for contig, gaps in zip((name for name in expected if name != "whole"), contigs, strict=True)
    }


def test_the_forms_of_a_fragment_s_name():
    assert parse_fragment("chr20:1000001-2000000") == Interval("chr20", 1_000_000, 2_000_000)
    assert parse_fragment("chr20:1,000,001-2,000,000") == Interval("chr20", 1_000_000, 2_000_000)
    assert parse_fragment("HLA:A:1-5") == Interval("HLA:A", 0, 5)
    for name in (
        "chr20",
        "c:0-5",
        "c:5-4",
        "c:1-",
        "c:-5",
        ":1-5",
        "c:1,00-2,000",
        "c:1-2/rc",
        "c:1-9999999999",
    ):
        assert parse_fragment(name) is None


def test_a_name_that_the_length_or_the_assembly_contradicts_stays(tmp_path, capsys):
    source, output = tmp_path / "x.fa", tmp_path / "out.fa.gz"
    source.write_text(as_fasta([("c:3-9", "ACGT"), ("d:3-6", "ACGT"), ("e:3-6", "ACGT")]))
    aliases = written(tmp_path / "aliases.tsv", "e:3-6\tE\n")
    assembly = open_assembly("custom", aliases)
    assert prepare_reference(source, output, assembly).contigs == {"c:3-9": 4, "d": 6, "e:3-6": 4}
    said = capsys.readouterr().err
    assert "record 'c:3-9' has 4 bp, not the 7 that its name tells: it stays a contig of that name" in said
    assert "contig 'd' has 4 bp in fragments, each at its position, and N elsewhere" in said


@pytest.mark.parametrize(
    "records",
    [
        [named("c", 5, "ACGT"), named("c", 7, "ACGT")],
        [named("c", 9, "ACGT"), named("c", 2, "ACGT")],
        [named("c", 2, "ACGT"), ("d", "A"), named("c", 9, "ACGT")],
        [named("c", 2, "ACGT"), ("c", "A")],
        [("c", "A"), named("c", 2, "ACGT")],
    ],
)
def test_fragments_that_do_not_go_together_are_refused(tmp_path, records):
    source, output = tmp_path / "x.fa", tmp_path / "out" / "x.fa.gz"
    output.parent.mkdir()
    source.write_text(as_fasta(records))
    with fails(DataError) as caught:
        prepare_reference(source, output)
    assert str(caught.value).startswith(str(source)) and not list(output.parent.iterdir())


def test_a_fragment_has_to_lie_inside_its_contig_and_is_no_start_of_it(tmp_path, capsys):
    source, output = tmp_path / "x.fa", tmp_path / "x.fa.gz"
    yeast = load_assembly("sacCer3")  # chromosome I has 230,218 bp
    source.write_text(as_fasta([named("chrI", 230_000, "ACGT" * 60)]))
    with fails(DataError):
        prepare_reference(source, output, yeast)
    source.write_text(as_fasta([named("chrI", 230_000, "ACGT" * 50)]))
    prepare_reference(source, output, yeast)
    assert "taken for a part" not in capsys.readouterr().err


SCRIPT = """
import resource, sys
from pathlib import Path
from bigbird_dna.genome.reference import prepare_reference
home = Path(sys.argv[1])
for start in (1, 100_000_001):
    name = f"c:{start}-{start + 59}"
    (home / "x.fa").write_text(f">{name}\\n{'ACGT' * 15}\\n")
    prepare_reference(home / "x.fa", home / "x.fa.gz")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_n_before_a_fragment_takes_no_memory(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path], capture_output=True, text=True, check=True
    )
    small, large = map(int, done.stdout.split())  # kB
    assert large - small < 60_000
