"""Normal forms and windows against oracles that edit whole contigs."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.genome.variants import (
    OFFSET_SPAN,
    AlleleWindows,
    Change,
    Note,
    allele_windows,
    contig_finder,
    find_change,
    window_offsets,
)
from tests.golden.messages import fails
from tests.toys import texts, written


def shared(first: str, second: str) -> int:
    """How many letters two texts begin with in common."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


def normal_form(before: str, after: str) -> Change:
    """The leftmost smallest replacement that turns one contig into the other: from whole strings."""
    suffix = shared(before[::-1], after[::-1])
    rest, other = before[: len(before) - suffix], after[: len(after) - suffix]
    prefix = shared(rest, other)
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
    alt = draw(st.text("ACG", min_size=1, max_size=6) | st.just(ref + unit) | st.just(unit))
    assume(ref != alt)
    return sequence, start, ref, alt


@settings(max_examples=300, deadline=None)
@given(changed_contigs())
def test_normal_form_is_that_of_the_whole_contigs(case: tuple[str, int, str, str]) -> None:
    sequence, start, ref, alt = case
    after = sequence[:start] + alt + sequence[start + len(ref) :]
    assert find_change("c", start, ref, alt, texts(c=sequence)) == normal_form(sequence, after)


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
        expected.append(tuple(padded[size + first : 2 * size + first] for first in firsts))
        beyond |= min(firsts) < 0 or max(firsts) + size > len(contig)
    assert found == AlleleWindows(*expected, beyond)
    # Opposite change of a reference that has ALT: the same windows.
    back = find_change("c", start, alt, ref, texts(c=after))
    assert isinstance(back, Change)
    turned = allele_windows(back, texts(c=after), size, offsets)
    assert turned == AlleleWindows(found.alt, found.ref, found.reaches_beyond)


def test_normal_form_moves_through_long_repeats() -> None:
    sequence = "GT" + "AC" * 3000 + "TT"
    reference = texts(c=sequence)
    for start in (100, 2001, 5999):
        found = find_change("c", start, sequence[start : start + 3], sequence[start], reference)
        assert found == Change("c", 2, "AC", "")
        longer = sequence[start : start + 3]
        found = find_change("c", start, longer[0], longer, reference)
        assert found == Change("c", 2, "", "AC")
    whole = texts(c="A" * 500)
    assert find_change("c", 400, "A", "AAA", whole) == Change("c", 0, "", "AA"), "to the contig's start"


SEQUENCE = "ACGTTTGCANNNRACGTAacgt"


@pytest.mark.parametrize(
    ("contig", "start", "ref", "alt", "expected"),
    [
        ("c", 0, "A", ".", Note.NO_ALT),
        ("c", 0, "A", "*", Note.SPANNING_DELETION),
        ("c", 0, "A", "<DEL>", Note.SYMBOLIC),
        ("c", 0, "A", "<*>", Note.SYMBOLIC),
        ("c", 0, "A", "A<ctg1>", Note.SYMBOLIC),
        ("c", 0, "A", "A[17:198982[", Note.BREAKEND),
        ("c", 0, "A", "]<ctg>:5]A", Note.BREAKEND),
        ("c", 0, "A", "A.", Note.BREAKEND),
        ("c", 0, "A", ".A", Note.BREAKEND),
        ("c", 0, "A", "-", Note.NOT_BASES),
        ("c", 0, "A", "AÄ", Note.NOT_BASES),
        ("c", 0, "-", "A", Note.NOT_BASES),
        (None, 0, "A", "C", Note.CONTIG_UNKNOWN),
        ("c", -1, "N", "C", Note.BEYOND_CONTIG),
        ("c", 22, "A", "C", Note.BEYOND_CONTIG),
        ("c", 21, "TA", "C", Note.BEYOND_CONTIG),
        ("c", 1, "A", "C", Note.REF_MISMATCH),
        ("c", 0, "ACC", "A", Note.REF_MISMATCH),
        ("c", 0, "N", "C", Note.REF_MISMATCH),
        ("c", 0, "R", "C", Note.REF_MISMATCH),
        ("c", 0, "A", "a", Note.NO_CHANGE),
        ("c", 9, "N", "N", Note.NO_CHANGE),
        ("c", 9, "N", "A", Note.REF_UNKNOWN),
        ("c", 9, "A", "C", Note.REF_UNKNOWN),
        ("c", 12, "R", "G", Note.REF_UNKNOWN),
        ("c", 12, "A", "G", Note.REF_UNKNOWN),
        ("c", 0, "A", "N", Note.AMBIGUOUS),
        ("c", 0, "A", "Y", Note.AMBIGUOUS),
        ("c", 0, "A", "AR", Note.AMBIGUOUS),
        ("c", 0, "a", "g", Change("c", 0, "A", "G")),
        ("c", 18, "A", "G", Change("c", 18, "A", "G")),
        ("c", 21, "T", "TA", Change("c", 22, "", "A")),
        ("c", 1, "CGT", "CTA", Change("c", 2, "GT", "TA")),
        ("c", 12, "NA", "NC", Change("c", 13, "A", "C")),
        ("c", 12, "RAC", "RC", Change("c", 13, "A", "")),
    ],
)
def test_what_becomes_of_an_allele(
    tmp_path: Path, contig: str | None, start: int, ref: str, alt: str, expected: Change | Note
) -> None:
    path = written(tmp_path / "x.fa", f">c\n{SEQUENCE}\n")  # as it is: `write_fasta` would take the R away
    with Reference(path) as reference:
        assert find_change(contig, start, ref, alt, reference) == expected


def test_every_note_is_its_name_and_has_a_meaning() -> None:
    assert all(str(note) == note.name and note.meaning for note in Note)


@pytest.mark.parametrize("count", range(1, OFFSET_SPAN + 2))
def test_offsets_are_distinct_even_and_symmetric(count: int) -> None:
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


def test_yeast_chromosome_ten_is_not_the_human_x() -> None:
    find = contig_finder({row.name: row.length for row in load_assembly("sacCer3").contigs}, None)
    assert find("chrX") == find("X") and find("chr22") is None


def test_reference_and_its_double_agree(tmp_path: Path) -> None:
    write_fasta(tmp_path / "x.fa.gz", [("c", "ACGTN" * 30)])
    double = texts(c="ACGTN" * 30)
    with Reference(tmp_path / "x.fa.gz") as reference:
        for start, end in ((-5, 3), (0, 150), (140, 170), (200, 210), (-9, -2), (7, 7)):
            assert reference.fetch(Interval("c", start, end)) == double.fetch(Interval("c", start, end))
