"""Start sites: EPDnew's formats, other BED and annotations, the table, and their place on a reference."""

import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome.assembly import load_assembly
from bigbird_dna.genome.promoters import place, read_loci, read_promoters, write_loci
from bigbird_dna.genome.sequence import Locus
from tests.golden.messages import fails

names = st.text("ABCXYZ019._-", min_size=1, max_size=20)
loci_lists = st.lists(
    st.builds(
        Locus,
        contig=st.sampled_from(["NC_001133.9", "NC_001134.8", "chrI"]),
        position=st.integers(100, 200_000),
        strand=st.sampled_from("+-"),
        name=names,
    ),
    min_size=1,
    max_size=8,
)
one_directory = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def as_sga(loci):
    return "".join(f"{x.contig}\tTSS\t{x.position + 1}\t{x.strand}\t1\t{x.name}\n" for x in loci)


def as_fps(loci):
    return "".join(
        f"FP   {x.name:<20}:+U  EU:{x.contig:<18}1{x.strand}{x.position + 1:>10};{n:>6}.\n"
        for n, x in enumerate(loci, start=1)
    )


def as_bed(loci):
    """EPD's layout: 49 bp before the start site are thin, the site and 10 bp after it thick."""
    text = ""
    for x in loci:
        if x.strand == "+":
            start, end = x.position - 49, x.position + 11
            thick = (x.position, end)
        else:
            start, end = x.position - 10, x.position + 50
            thick = (start, x.position + 1)
        text += f"{x.contig}\t{start}\t{end}\t{x.name}\t900\t{x.strand}\t{thick[0]}\t{thick[1]}\n"
    return text


@one_directory
@given(loci=loci_lists, packed=st.booleans(), newline=st.sampled_from(["\n", "\r\n"]))
def test_the_three_formats_say_the_same(tmp_path, loci, packed, newline):
    for suffix, write in ((".sga", as_sga), (".bed", as_bed), (".fps", as_fps)):
        content = write(loci).replace("\n", newline).encode()
        path = tmp_path / (f"x{suffix}.gz" if packed else f"x{suffix}")
        path.write_bytes(gzip.compress(content) if packed else content)
        assert read_promoters(path) == loci


@one_directory
@given(loci=loci_lists)
def test_the_table_gives_back_what_went_in(tmp_path, loci):
    write_loci(tmp_path / "x.tsv", loci)
    assert read_loci(tmp_path / "x.tsv") == loci


def test_rows_that_epd_published_as_bed(tmp_path):
    path = tmp_path / "x.bed"
    path.write_text(
        "track name=EPDnew\n"
        "chr1\t166166977\t166167037\tFAM78B_1\t900\t-\t166166977\t166166988\n"
        "chr1\t166839300\t166839360\tPOGK_2\t900\t+\t166839349\t166839360\n"
    )
    assert read_promoters(path) == [
        Locus("chr1", 166_166_987, "-", "FAM78B_1"),
        Locus("chr1", 166_839_349, "+", "POGK_2"),
    ]


def test_those_rows_are_the_sites_of_the_sga_file(shared_data):
    sites = {x.name: x for x in read_promoters(shared_data / "epdnew/Hs_EPDnew_006_hg38.sga")}
    assert (sites["FAM78B_1"].position, sites["FAM78B_1"].strand) == (166_166_987, "-")
    assert (sites["POGK_2"].position, sites["POGK_2"].strand) == (166_839_349, "+")


@pytest.mark.parametrize(
    "stem", ["epdnew/Hs_EPDnew_006_hg38", "yeast/Sc_EPDnew_002_sacCer3"], ids=["human", "yeast"]
)
def test_real_sga_bed_and_fps_agree(shared_data, tmp_path, stem):
    sga = read_promoters(shared_data / f"{stem}.sga")
    assert read_promoters(shared_data / f"{stem}.fps.gz") == sga
    bed = tmp_path / "x.bed"
    bed.write_text(as_bed(sga))
    assert read_promoters(bed) == sga


def test_a_bed_interval_of_one_base_is_the_site(tmp_path):
    path = tmp_path / "x.bed"
    path.write_text("chrI\t5\t6\ta\t0\t-\n")
    assert read_promoters(path) == [Locus("chrI", 5, "-", "a")]


@pytest.mark.timeout(20)
def test_an_fps_line_without_end_is_refused_at_once(tmp_path):
    path = tmp_path / "x.fps"
    path.write_text("FP   A_1                 :+S  EU:" + "chU:" * 500_000)
    with fails(DataError):
        read_promoters(path)


def test_other_lines_of_an_fps_file_are_passed_over(tmp_path):
    path = tmp_path / "x.fps"
    path.write_text("ID   x\nXX\n" + as_fps([Locus("c", 9, "+", "a")]) + "//\n\n")
    assert read_promoters(path) == [Locus("c", 9, "+", "a")]


BROKEN = {
    "x.txt": ("anything", "promoters come as"),
    "x.sga": ("c\tTSS\t5\t+\n", "line 1: expected 5 tab-separated columns, found 4"),
    "strand.sga": ("c\tTSS\t5\t0\t1\ta\n", "line 1: strand must be"),
    "position.sga": ("c\tTSS\t5\t+\t1\ta\nc\tTSS\t-5\t+\t1\ta\n", "line 2: '-5' is not a position"),
    "zero.sga": ("c\tTSS\t0\t+\t1\ta\n", "line 1: position 0"),
    "none.sga": ("# nothing\n", "no promoter in the file"),
    "empty.sga": ("", "the file is empty"),
    "x.bed": ("c\t5\t5\ta\t0\t+\n", "line 1: interval 5-5 has no bases"),
    "dot.bed": ("c\t5\t65\ta\t0\t.\n", "line 1: strand must be"),
    "thick.bed": ("c\t5\t65\ta\t0\t+\t70\t75\n", "line 1: thick part 70-75 is not inside 5-65"),
    "thin.bed": ("c\t5\t65\ta\t0\t+\t5\t5\n", "line 1: thick part 5-5"),
    "few.bed": ("c\t5\t65\n", "line 1: expected 6 tab-separated columns, found 3"),
    "x.fps": ("FP   a  somewhere\n", "line 1: not an FPS entry"),
    "y.fps": ("c\tTSS\t5\t+\t1\ta\n", "line 1: not a line of an FPS file"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_gives_one_clear_line(tmp_path, name):
    text, message = BROKEN[name]
    path = tmp_path / name
    path.write_text(text)
    with fails(DataError) as caught:
        read_promoters(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("contig\tstart\n", "the header is not 'contig position strand name'"),
        ("contig\tposition\tstrand\tname\nc\t5\t+\n", "line 2: expected 4"),
        ("contig\tposition\tstrand\tname\nc\tx\t+\ta\n", "line 2: 'x' is not a position"),
    ],
)
def test_a_broken_table_gives_one_clear_line(tmp_path, text, message):
    (tmp_path / "x.tsv").write_text(text)
    with fails(DataError):
        read_loci(tmp_path / "x.tsv")


def test_placing_renames_sorts_counts_and_drops():
    loci = [
        Locus("NC_001134.8", 10, "+", "a"),
        Locus("chrI", 50, "+", "b"),
        Locus("chr1", 50, "+", "b again"),
        Locus("chrI", 50, "-", "c"),
        Locus("chrI", 230_218, "+", "beyond"),
        Locus("NC_001135.5", 1, "+", "elsewhere"),
        Locus("unheard", 1, "+", "of"),
    ]
    placed = place(loci, {"I": 230_218, "II": 813_184}, load_assembly("sacCer3"), "x.sga")
    assert placed.loci == [Locus("I", 50, "+", "b"), Locus("I", 50, "-", "c"), Locus("II", 10, "+", "a")]
    assert (placed.off_reference, placed.duplicates) == (3, 1)
    assert placed.absent == {"NC_001135.5": 1, "unheard": 1}
    assert placed.beyond == {"chrI": 1}


def test_nothing_on_the_reference_is_an_error_with_both_naming_schemes():
    loci = [Locus("NC_000022.11", 5, "+", "a")]
    with pytest.raises(DataError) as caught:
        place(loci, {"chr22": 100}, load_assembly("GRCh37"), "x.sga")
    assert str(caught.value) == (
        "x.sga: no promoter lies on the reference: the promoters' contigs are NC_000022.11, the "
        "reference's chr22 (names are looked up in GRCh37); the promoters' names are known to "
        "GRCh38"
    )
