"""Normal forms and windows against oracles that edit whole contigs."""

from itertools import pairwise
from os.path import commonprefix
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bigbird_dna.genome.assembly import contig_finder, load_assembly
from bigbird_dna.genome.reference import Reference
from bigbird_dna.genome.variants import (
    OFFSET_SPAN,
    AlleleWindows,
    Change,
    Note,
    allele_windows,
    find_change,
    window_offsets,
)
from bigbird_dna.genome.vcf import open_vcf, read_vcf
from tests.genome.formats import PACKINGS, vcf_text
from tests.golden.messages import fails
from tests.toys import texts, written


def normal_form(before: str, after: str) -> Change:
    """The leftmost smallest replacement that turns one contig into the other: from whole strings."""
    suffix = len(commonprefix([before[::-1], after[::-1]]))  # noqa: RUF071 - of letters
    rest, other = before[: len(before) - suffix], after[: len(after) - suffix]
    prefix = len(commonprefix([rest, other]))  # noqa: RUF071
    return Change("c", prefix, rest[prefix:], other[prefix:])


@st.composite
def changed_contigs(draw: st.DrawFn) -> tuple[str, int, str, str]:
    """A contig with repeats, and start, REF and ALT of a variant on it."""
    unit = draw(st.sampled_from(["A", "AC", "ACG", "GATTACA"]))
    sequence = (
        draw(st.text("ACGT", min_size=1, max_size=12))
        + unit * draw(st.integers(0, 60))
        + draw(st.text("AC", max_size=12))
    )
    start = draw(st.integers(0, len(sequence) - 1))
    ref = sequence[start : start + draw(st.integers(1, 9))]
    alt = draw(
        st.text("ACG", min_size=1, max_size=6) | st.just(ref + unit) | st.just(unit)
    )
    assume(ref != alt)
    return sequence, start, ref, alt


@settings(max_examples=300, deadline=None)
@given(changed_contigs())
def test_normal_form_is_that_of_the_whole_contigs(
    case: tuple[str, int, str, str],
) -> None:
    sequence, start, ref, alt = case
    after = sequence[:start] + alt + sequence[start + len(ref) :]
    assert find_change("c", start, ref, alt, texts(c=sequence)) == normal_form(
        sequence, after
    )


@settings(max_examples=200, deadline=None)
@given(changed_contigs(), st.integers(1, 30), st.integers(0, 8))
def test_windows_hold_the_contigs_with_either_allele(
    case: tuple[str, int, str, str], slack: int, span: int
) -> None:
    sequence, start, ref, alt = case
    change = find_change("c", start, ref, alt, texts(c=sequence))
    assert isinstance(change, Change)
    longer = max(len(change.ref), len(change.alt))
    size, offsets = longer + slack, (-span // 2, 0, span // 2)
    found = allele_windows(change, texts(c=sequence), size, offsets)
    if slack // 2 + offsets[0] < 0 or slack // 2 + offsets[-1] > slack:
        assert found is None
        return
    after = sequence[:start] + alt + sequence[start + len(ref) :]
    expected = []
    beyond = False
    for contig in (sequence, after):
        padded = "N" * size + contig + "N" * (2 * size)
        firsts = [change.start - (size - longer) // 2 - offset for offset in offsets]
        expected.append(
            tuple(padded[size + first : 2 * size + first] for first in firsts)
        )
        beyond |= min(firsts) < 0 or max(firsts) + size > len(contig)
    assert found == AlleleWindows(*expected, beyond)
    # Opposite change of a reference that has ALT: the same windows.
    back = find_change("c", start, alt, ref, texts(c=after))
    assert isinstance(back, Change)
    turned = allele_windows(back, texts(c=after), size, offsets)
    assert turned == AlleleWindows(found.alt, found.ref, found.reaches_beyond)


SEQUENCE = "ACGTTTGCANNNRACGTAacgt"


# Start, REF and ALT of alleles by what becomes of them.
ALLELES: dict[Change | Note, str] = {
    Note.NO_ALT: "0 A .",
    Note.SPANNING_DELETION: "0 A *",
    Note.SYMBOLIC: "0 A <DEL>; 0 A <*>; 0 A A<ctg1>",
    Note.BREAKEND: "0 A A[17:198982[; 0 A ]<ctg>:5]A; 0 A A.; 0 A .A",
    Note.NOT_BASES: "0 A -; 0 A AÄ; 0 - A",
    Note.BEYOND_CONTIG: "-1 N C; 22 A C; 21 TA C",
    Note.REF_MISMATCH: "1 A C; 0 ACC A; 0 N C; 0 R C",
    Note.NO_CHANGE: "0 A a; 9 N N",
    Note.REF_UNKNOWN: "9 N A; 9 A C; 12 R G; 12 A G",
    Note.AMBIGUOUS: "0 A N; 0 A Y; 0 A AR",
    Change("c", 0, "A", "G"): "0 a g",
    Change("c", 18, "A", "G"): "18 A G",
    Change("c", 22, "", "A"): "21 T TA",
    Change("c", 2, "GT", "TA"): "1 CGT CTA",
    Change("c", 13, "A", "C"): "12 NA NC",
    Change("c", 13, "A", ""): "12 RAC RC",
}


def test_what_becomes_of_an_allele(tmp_path: Path) -> None:
    path = written(
        tmp_path / "x.fa", f">c\n{SEQUENCE}\n"
    )  # as it is: `write_fasta` would take the R away
    with Reference(path) as reference:
        for expected, alleles in ALLELES.items():
            for start, ref, alt in map(str.split, alleles.split(";")):
                assert find_change("c", int(start), ref, alt, reference) == expected, (
                    start,
                    ref,
                    alt,
                )
        assert find_change(None, 0, "A", "C", reference) == Note.CONTIG_UNKNOWN
    assert all(str(note) == note.name and note.meaning for note in Note)


def test_offsets_are_distinct_even_and_symmetric() -> None:
    for count in range(1, OFFSET_SPAN + 2):
        offsets = window_offsets(count)
        assert len(set(offsets)) == count
        assert sorted(-offset for offset in offsets) == list(offsets)
        if count > 1:
            assert offsets[-1] - offsets[0] == OFFSET_SPAN
            steps = {right - left for left, right in pairwise(offsets)}
            assert max(steps) - min(steps) <= 2


@pytest.mark.parametrize("count", [0, -1, OFFSET_SPAN + 2])
def test_offsets_out_of_range_are_refused(count: int) -> None:
    with fails(ValueError):
        window_offsets(count)


def test_contigs_by_their_other_names() -> None:
    lengths = {row.name: row.length for row in load_assembly("GRCh37").contigs}
    names = list(lengths)
    find = contig_finder(lengths, None)
    assert find(names[0]) == names[0]
    for row in load_assembly("GRCh37").contigs:
        assert {find(name) for name in row.names} == {row.name}
    assert find("NC_000001.11") is None, "GRCh38's"
    assert find("nowhere") is None
    # The length of a fragment fits two assemblies: only a name that means the same in both counts.
    fragment = contig_finder({"22": 22_000_000}, None)
    assert fragment("chr22") == "22"
    assert fragment("NC_000022.10") is None and fragment("NC_000022.11") is None
    own = contig_finder({"scaffold_1": 50}, None)
    assert own("scaffold_1") == "scaffold_1" and own("chr1") is None
    # Yeast's chromosome ten is not the human X.
    find = contig_finder(
        {row.name: row.length for row in load_assembly("sacCer3").contigs}, None
    )
    assert find("chrX") == find("X") and find("chr22") is None


# VCF as text: what is kept, what is refused with its line.


RECORDS = (
    "c\t5\trs1;rs2\tA\tC,<DEL>,*\t10.5\tq10;s50\tAF=0.5,.;DB",
    "c\t7\t.\tac\tG]c:9]\t.\t.\t.",
    "HLA:1\t0\t.\tN\t.\t.\tPASS\tAF=1",
)


@pytest.mark.parametrize("packing", PACKINGS)
def test_records_of_packed_and_plain_files(tmp_path: Path, packing: str) -> None:
    text = vcf_text(*RECORDS).encode()
    path = written(tmp_path / "x.vcf", PACKINGS[packing](text))
    with open_vcf(path) as vcf:
        first, second, third = read_vcf(vcf, path)
    assert [one.line for one in (first, second, third)] == list(RECORDS)
    assert first[:5] == ("c", 4, "A", ("C", "<DEL>", "*"), "rs1;rs2")
    assert second[:5] == ("c", 6, "ac", ("G]c:9]",), ".")
    assert third[:5] == ("HLA:1", -1, "N", (".",), ".")
