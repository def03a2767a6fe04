"""`score-variants` as a command, with a predictor that any base can change in a model's place."""

import gzip
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pysam
import pysam.bcftools
import pytest
from torch import nn

from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack
from bigbird_dna.scoring import variants as scoring
from tests.cli.command import Result, Run, refused, table
from tests.golden.messages import message
from tests.toys import hashed

TRACKS = {"CTCF": "TF", "open chromatin": "DHS", "H3K4me3": "HM"}
HEADER = "##fileformat=VCFv4.2\n##contig=<ID=chr1>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"


class Hashed(LoadedChromatinModel):
    """Predicts what any base can change."""

    sha256 = "abcd"

    def window_probabilities(self, sequences: Sequence[str], **_: Any) -> np.ndarray:
        return hashed(sequences, 1, 3)


def hashed_model(window: int) -> Hashed:
    tracks = tuple(
        NamedTrack(track=name, group=group) for name, group in TRACKS.items()
    )
    settings = ChromatinSettings(
        window=window, bin=2, pooling="bin", bin_layers=0, members=1, tracks=tracks
    )
    return Hashed(nn.Module(), None, EncoderConfig(), settings, Path("model"))


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `bigbird-dna score-variants` with the predictor in the place of any model."""

    def call(*words: object, stdin: bytes = b"", window: int = 60) -> Result:
        monkeypatch.setattr(scoring, "load", lambda _: hashed_model(window))
        return run("score-variants", "model", *words, stdin=stdin)

    return call


@pytest.fixture
def fasta(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "genome.fa.gz"
    path.parent.mkdir()
    bases = "".join(np.random.default_rng(1).choice(list("ACGT"), 400))
    write_fasta(path, [("chr1", bases[:300]), ("chr2", bases[300:] + "N" * 200)])
    return path


def line(contig: str, pos: int, ref: str, alt: str) -> str:
    return f"{contig}\t{pos}\t.\t{ref}\t{alt}\t.\tPASS\t.\n"


@pytest.fixture
def vcf(fasta: Path) -> Path:
    path = fasta.parent / "x.vcf"
    with pysam.FastaFile(str(fasta)) as genome:
        first, second = genome.fetch("chr1"), genome.fetch("chr2")
    other = {"A": "C", "C": "G", "G": "T", "T": "A"}
    records = [
        line("chr1", 50, first[49], f"{other[first[49]]},<DEL>"),
        line("chr1", 90, first[89:92], first[89]),
        line("chr1", 100, other[first[99]], first[99]),
        line("chr1", 150, first[149], first[149] + "GATTACA"),
        line("chr2", 2, second[1], other[second[1]]),
        line("chr3", 1, "A", "C"),
    ]
    path.write_text(HEADER + "".join(records))
    return path


def test_vcf_on_standard_output(run: Run, vcf: Path, fasta: Path) -> None:
    result = run(vcf, "--reference", fasta)
    assert result.code == 0, result.err
    rows = table(result.out)
    plain = table(vcf.read_text())
    assert [{**row, "INFO": "."} for row in rows] == plain
    infos = [dict(part.split("=") for part in row["INFO"].split(";")) for row in rows]
    notes = [info.get("BBD_NOTE") for info in infos]
    assert notes == [
        ".,SYMBOLIC",
        None,
        "REF_MISMATCH",
        None,
        "TOO_MANY_N&CONTIG_EDGE",
        "CONTIG_UNKNOWN",
    ]
    assert all(
        ("BBD_MAX" in info) == (row in (0, 1, 3)) for row, info in enumerate(infos)
    )
    assert not any("BBD_DELTA" in info for info in infos)
    assert "##bigbird_dna_model=abcd\n" in result.out
    command = f"score-variants model {vcf} --reference {fasta} --format vcf --offsets 4 --max-n 0.25"
    assert f"##bigbird_dna_command=bigbird-dna {command}\n" in result.out
    assert (
        "6 records: 3 alternative alleles scored, 4 not scored (SYMBOLIC 1"
        in result.err
    )
    assert "warning" not in result.err


def test_tracks_choose_what_counts(run: Run, vcf: Path, fasta: Path) -> None:
    words = (vcf, "--reference", fasta, "--format", "tsv")
    short = table(run(*words).out)
    assert list(short[0])[5:] == ["note", "max_delta", "max_track"]
    every = table(run(*words, "--tracks", "*").out)
    assert [{key: row[key] for key in short[0]} for row in every] == short
    two = table(run(*words, "--tracks", "open*,TF").out)
    assert list(two[0])[8:] == [
        f"{n}:{v}" for n in ("CTCF", "open chromatin") for v in ("delta", "logodds")
    ]
    for row, full in zip(two, every, strict=True):
        assert all(row[key] == full[key] for key in list(row)[8:])
        if row["note"] == ".":
            largest = max(
                ("CTCF", "open chromatin"),
                key=lambda name: abs(float(row[f"{name}:delta"])),
            )
            assert (row["max_track"], row["max_delta"]) == (
                largest,
                row[f"{largest}:delta"],
            )
    text = run(vcf, "--reference", fasta, "--tracks", "open*,TF").out
    assert "the tracks CTCF,open%20chromatin" in text and "BBD_DELTA=" in text


def test_a_record_lies_where_its_ref_does(
    run: Run, vcf: Path, fasta: Path, tmp_path: Path
) -> None:
    """That at 90 reaches to 92."""
    bed = tmp_path / "x.bed"
    bed.write_text("chr1\t91\t99\nchr1\t149\t150\nchr2\t1\t2\n")
    result = run(vcf, "--reference", fasta, "--format", "tsv", "--regions", bed)
    found = dict.fromkeys((row["contig"], row["position"]) for row in table(result.out))
    assert list(found) == [("chr1", "90"), ("chr1", "150"), ("chr2", "2")]
    none = tmp_path / "none.vcf"
    none.write_text(HEADER + vcf.read_text().splitlines()[3] + "\n")
    result = run(none, "--reference", fasta, "--contig", "2")
    assert result.code == 0
    message(result.err, f"warning: {none}: ")


def test_standard_input_may_be_packed(run: Run, vcf: Path, fasta: Path) -> None:
    expected = run("-", "--reference", fasta, stdin=vcf.read_bytes()).out
    packed = gzip.compress(vcf.read_bytes())
    assert run("-", "--reference", fasta, stdin=packed).out == expected


WRONG = {
    "position": "chr1\tx\t.\tA\tC\t.\t.\t.",
    "columns": "chr1\t60",
    "empty REF": "chr1\t60\t.\t.\tC\t.\t.\t.",
    "contig": "a b\t60\t.\tA\tC\t.\t.\t.",
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_record_is_one_error_with_its_number(
    run: Run, vcf: Path, fasta: Path, tmp_path: Path, fault: str
) -> None:
    lines = vcf.read_text().splitlines(keepends=True)
    lines.insert(5, WRONG[fault] + "\n")
    vcf.write_text("".join(lines))
    output = tmp_path / "out.vcf"
    output.write_text("of a former run")
    result = run(vcf, "--reference", fasta, "-o", output)
    refused(result, 1, f"{vcf}: record 3, after chr1:90")
    assert output.read_text() == "of a former run"


def test_what_is_no_vcf_is_one_error(
    run: Run, vcf: Path, fasta: Path, tmp_path: Path
) -> None:
    packed = gzip.compress(vcf.read_bytes())
    for name, content in {
        "empty.vcf": b"",
        "x.fa": b">a\nACGT\n",
        "cut.vcf.gz": packed[:-20],
        "no-header.vcf": vcf.read_bytes().split(b"\n", 2)[2],
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        refused(run(path, "--reference", fasta), 1, path)
    refused(run(tmp_path / "none.vcf", "--reference", fasta), 1, "none.vcf")


def test_an_output_is_scored_again_to_the_same_records(
    run: Run, vcf: Path, fasta: Path, tmp_path: Path
) -> None:
    once, twice = tmp_path / "a.vcf", tmp_path / "b.vcf"
    words = ("--reference", fasta, "--tracks", "*")
    assert run(vcf, *words, "-o", once).code == run(once, *words, "-o", twice).code == 0
    first, second = (
        [row for row in path.read_text().splitlines() if "_command=" not in row]
        for path in (once, twice)
    )
    assert first == second


def turned(vcf: Path) -> Path:
    """The same records, the last one first."""
    lines, path = vcf.read_text().splitlines(keepends=True), vcf.with_name("turned.vcf")
    path.write_text("".join([*lines[:3], *reversed(lines[3:])]))
    return path


@pytest.mark.parametrize("ending", ["vcf", "tsv"])
def test_a_packed_output_has_an_index_if_sorted(
    run: Run, vcf: Path, fasta: Path, tmp_path: Path, ending: str
) -> None:
    output, index = tmp_path / f"x.{ending}.gz", tmp_path / f"x.{ending}.gz.tbi"
    words = ("--reference", fasta, "-o", output)
    result = run(vcf, *words)
    assert (result.code, result.out) == (0, ""), result.err
    assert sorted(tmp_path.glob("*x*")) == [output, index]
    with pysam.TabixFile(str(output)) as found:
        assert [row.split("\t")[1] for row in found.fetch("chr1", 89, 100)] == [
            "90",
            "100",
        ]
    assert run(turned(vcf), *words).code == 0
    assert not index.exists(), "that of the former file"
    rows = [
        row.split("\t")[1]
        for row in gzip.decompress(output.read_bytes()).decode().splitlines()
        if not row.startswith("#")
    ]
    assert list(dict.fromkeys(rows)) == ["1", "2", "150", "100", "90", "50"]


def test_a_vcf_of_another_genome(
    run: Run, vcf: Path, fasta: Path, tmp_path: Path
) -> None:
    """None of its contigs fits: an error that names both sides. Some don't: each of their records says so."""
    other, out = tmp_path / "other.vcf", tmp_path / "out.vcf"
    other.write_text(HEADER + line("scaffold", 100, "G", "A") + line("x", 1, "A", "C"))
    both = f"none of the contigs (scaffold, x) is in {fasta} (chr1, chr2)"
    for words in ((), ("-o", out), ("--format", "tsv")):
        refused(run(other, "--reference", fasta, *words), 1, f"{other}: {both}")
    refused(run("-", "--reference", fasta, stdin=other.read_bytes()), 1, both)
    assert not out.exists()
    result = run(vcf, "--reference", fasta)
    assert result.code == 0 and "CONTIG_UNKNOWN" in result.out.splitlines()[-1]


@pytest.mark.parametrize("way", ["file", "stdin"])
def test_contigs_that_the_header_lacks_are_added(
    run: Run, vcf: Path, fasta: Path, tmp_path: Path, way: str
) -> None:
    lines = vcf.read_text().splitlines(keepends=True)
    vcf.write_text("".join([lines[0], *lines[2:-1]]))
    source, stdin = (vcf, b"") if way == "file" else ("-", vcf.read_bytes())
    result = run(source, "--reference", fasta, stdin=stdin)
    declared = [text for text in result.out.splitlines() if text.startswith("##contig")]
    assert declared == [
        "##contig=<ID=chr1,length=300>",
        "##contig=<ID=chr2,length=300>",
    ]
    out = tmp_path / "out.vcf"
    out.write_text(result.out)
    with pysam.VariantFile(str(out)) as read:
        assert [(c.name, c.length) for c in read.header.contigs.values()] == [
            ("chr1", 300),
            ("chr2", 300),
        ]
        assert [(record.chrom, record.pos) for record in read][-1] == ("chr2", 2)
    # Those that are declared stay as they are, those of other names are declared by these.
    text = "".join([lines[0], "##contig=<ID=chr2,length=7>\n", lines[2], *lines[3:-1]])
    vcf.write_text(text.replace("chr1\t", "1\t"))
    source, stdin = (vcf, b"") if way == "file" else ("-", vcf.read_bytes())
    result = run(source, "--reference", fasta, stdin=stdin)
    declared = [text for text in result.out.splitlines() if text.startswith("##contig")]
    assert declared == ["##contig=<ID=chr2,length=7>", "##contig=<ID=1,length=300>"]


def test_a_failure_while_scoring_leaves_the_old_output(
    run: Run, vcf: Path, fasta: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "x.vcf.gz"
    assert run(vcf, "--reference", fasta, "-o", output).code == 0
    before = {path: path.read_bytes() for path in tmp_path.glob("*x*")}
    monkeypatch.setattr(
        sys.modules[__name__],
        "hashed",
        lambda texts, *shape: np.full((len(texts), *shape), np.nan),
    )
    refused(run(vcf, "--reference", fasta, "-o", output), 1)
    assert {
        path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()
    } == before
    assert len(before) == 2


def test_windows_too_small_for_their_offsets(
    run: Run, vcf: Path, fasta: Path, tmp_path: Path
) -> None:
    words = (vcf, "--reference", fasta)
    assert "TOO_LONG" in run(*words, window=40).out
    assert run(*words, "--offsets", 1, window=1).code == 0
    plain = tmp_path / "plain.fa.gz"
    plain.write_bytes(gzip.compress(b">chr1\nACGT\n"))
    refused(run(vcf, "--reference", plain), 1, plain)
    assert run(vcf).code == 2, "--reference is needed"


def test_a_vcf_of_another_assembly_is_an_error_after_its_first_records(
    run: Run, fasta: Path, tmp_path: Path
) -> None:
    with pysam.FastaFile(str(fasta)) as genome:
        bases = genome.fetch("chr1")
    for wrong in (51, 50):
        refs = [
            "ACGT"[("ACGT".index(base) + (number < wrong)) % 4]
            for number, base in enumerate(bases[:150])
        ]
        vcf = tmp_path / "foreign.vcf"
        vcf.write_text(
            HEADER
            + "".join(line("chr1", n, ref, "T") for n, ref in enumerate(refs, start=1))
        )
        result = run(vcf, "--reference", fasta, "-o", tmp_path / "out.vcf")
        if wrong == 50:  # not most of them
            assert result.code == 0
        else:
            message(refused(result, 1), vcf, fasta, "51 of the first 100 records")
            assert not (tmp_path / "out.vcf").exists()


@pytest.mark.parametrize("tracks", ["*", "CTCF"])
def test_values_stay_with_their_allele_when_bcftools_splits_and_joins_records(
    run: Run, vcf: Path, fasta: Path, tmp_path: Path, tracks: str
) -> None:
    """A split record has the values that the table has for its ALT, and the joined records are the former."""
    with pysam.FastaFile(str(fasta)) as genome:
        bases = genome.fetch("chr1")
    others = [[base for base in "ACGT" if base != bases[at]] for at in (59, 79)]
    rows = [
        line("chr1", 60, bases[59], ",".join(others[0])),
        line("chr1", 80, bases[79], f"{others[1][2]},*,{others[1][0]}"),
        line("chr1", 85, bases[84], "."),
    ]
    vcf.write_text(HEADER + "".join(rows))
    words = (vcf, "--reference", fasta, "--tracks", tracks)
    scored = tmp_path / "scored.vcf"
    assert run(*words, "-o", scored).code == 0
    expected = {
        (row["position"], row["alt"]): row
        for row in table(run(*words, "--format", "tsv").out)
    }
    names = ["CTCF"] if tracks == "CTCF" else list(TRACKS)
    with pysam.VariantFile(str(scored)) as written:
        own = [key for key in written.header.info if key.startswith("BBD_")]
        assert {written.header.info[key].number for key in own} == {"A"}
        assert written.header.info["BBD_DELTA"].type == (
            "Float" if tracks == "CTCF" else "String"
        )
    split = tmp_path / "split.vcf"
    split.write_text(pysam.bcftools.norm("-m-", str(scored)))
    found = table(split.read_text())
    assert [(row["POS"], row["ALT"]) for row in found] == list(expected)
    for row in found:
        info = dict(part.partition("=")[::2] for part in row["INFO"].split(";"))
        of = expected[row["POS"], row["ALT"]]
        if of["max_delta"] == "NA":
            assert {info.get(key, ".") for key in own} <= {".", of["note"]}
            continue
        for key, column in {"BBD_DELTA": "delta", "BBD_LOGODDS": "logodds"}.items():
            assert info[key].split("&") == [of[f"{name}:{column}"] for name in names]
        assert info["BBD_MAX"] == of["max_delta"]
    joined = table(pysam.bcftools.norm("-m+any", str(split)))
    assert joined == table(scored.read_text())


LONG_HEADER = (
    "##fileformat=VCFv4.2\n##contig=<ID=chr1,length=600000000>\n"
    '##INFO=<ID=END,Number=1,Type=Integer,Description="end">\n'
    '##INFO=<ID=SVLEN,Number=A,Type=Integer,Description="length">\n'
    f"{HEADER.splitlines()[2]}\n"
)


@pytest.mark.parametrize(
    ("info", "ending"),
    [
        ("END=550000000", None),
        ("END=60", "tbi"),
    ],
)
def test_a_deletion_beyond_the_reach_of_tbi_has_an_index_that_finds_it(
    run: Run, vcf: Path, fasta: Path, tmp_path: Path, info: str, ending: str | None
) -> None:
    """CSI where TBI cannot; and what no index can hold is written without one, with a warning."""
    first, rest = (
        vcf.read_text().splitlines(keepends=True)[3],
        vcf.read_text().splitlines(keepends=True)[4:],
    )
    contig, pos, name, ref, *_ = first.split("\t")
    vcf.write_text(
        LONG_HEADER
        + f"{contig}\t{pos}\t{name}\t{ref}\t<DEL>\t.\t.\t{info}\n"
        + "".join(rest)
    )
    output = tmp_path / "x.vcf.gz"
    stale = [tmp_path / f"x.vcf.gz.{one}" for one in ("tbi", "csi")]
    for path in stale:
        path.write_text("of a former file")
    result = run(vcf, "--reference", fasta, "-o", output)
    assert result.code == 0, result.err
    assert [path.suffix for path in stale if path.exists()] == (
        [f".{ending}"] if ending else []
    )
    assert (f"warning: {output}: no index" in result.err) == (ending is None)
    rows = [
        row
        for row in gzip.decompress(output.read_bytes()).decode().splitlines()
        if row[0] != "#"
    ]
    assert len(rows) == 6
    if ending == "csi":
        with pysam.VariantFile(str(output)) as found:
            assert [
                row.pos for row in found.fetch("chr1", 540_000_000, 549_000_000)
            ] == [int(pos)]
            assert len([*found.fetch("chr1")]) == 4
        table_output = tmp_path / "x.tsv.gz"
        assert run(vcf, "--reference", fasta, "-o", table_output).code == 0
        with pysam.TabixFile(str(table_output)) as lines:
            assert len([*lines.fetch("chr1")]) == 4
