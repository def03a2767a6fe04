"""Sequences, regions and variants as a Python user gives them, against commands and windows by hand."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pysam
import pytest
from Bio.Seq import MutableSeq, Seq
from Bio.SeqRecord import SeqRecord

import bigbird_dna
from bigbird_dna.errors import BigBirdDnaError, DataError, ModelError, UsageError
from bigbird_dna.explanation.explain import explain
from bigbird_dna.genome.promoters import read_promoters
from bigbird_dna.genome.reference import Reference, write_fasta
from bigbird_dna.genome.sequence import Interval, reverse_complement
from bigbird_dna.model.settings import PretrainingSettings
from tests.cli.command import Run, refused
from tests.golden.messages import fails, message
from tests.test_public_api import home as home
from tests.toys import VCF, random_dna, random_model, small_tokenizer

UP, DOWN = 40, 20


@pytest.fixture(scope="module")
def promoter(home: Path) -> Any:
    return bigbird_dna.load(home / "promoter")


@pytest.fixture(scope="module")
def chromatin(home: Path) -> Any:
    return bigbird_dna.load(home / "chromatin")


@pytest.fixture(scope="module", params=["promoter", "chromatin"])
def model(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def genome(home: Path) -> Path:
    return home / "genome.fa.gz"


@pytest.fixture(scope="module")
def sequence(genome: Path) -> str:
    with Reference(genome) as opened:
        return opened.fetch(Interval("a", 0, 900))


def other(base: str) -> str:
    return "A" if base != "A" else "C"


def test_regions_and_effects_on_tracks_are_those_of_the_functions(
    chromatin: Any, home: Path, genome: Path, tmp_path: Path
) -> None:
    bigbird_dna.predict_tracks(
        chromatin, home / "regions.bed", genome, tmp_path / "x.tsv"
    )
    written = pd.read_csv(tmp_path / "x.tsv", sep="\t", skiprows=3)
    found = chromatin.predict_regions(home / "regions.bed", genome)
    assert list(found.columns) == [column.lstrip("#") for column in written.columns]
    assert (
        found.iloc[:, :5].to_numpy().tolist() == written.iloc[:, :5].to_numpy().tolist()
    )
    np.testing.assert_allclose(
        found[["one", "two"]], written[["one", "two"]], atol=6e-7
    )
    chosen = chromatin.predict_regions(
        home / "regions.bed", genome, tracks="two", summary="mean"
    )
    assert list(chosen.columns) == ["contig", "start", "end", "name", "note", "two"]
    assert chosen["two"][0] == found["two"][0] and chosen["two"][1] != found["two"][1]
    bigbird_dna.score_variants(
        chromatin, home / "x.vcf", genome, tmp_path / "y.tsv", tracks="*"
    )
    written = pd.read_csv(tmp_path / "y.tsv", sep="\t", skiprows=3)
    for values, column in (("delta", "delta"), ("log_odds", "logodds")):
        effects = chromatin.variant_effects(home / "x.vcf", genome, values=values)
        expected = written[[f"{track}:{column}" for track in ("one", "two")]]
        np.testing.assert_allclose(effects[["one", "two"]], expected, rtol=1e-5)


def test_a_file_a_list_and_a_table_of_regions_are_one(
    model: Any, home: Path, genome: Path, tmp_path: Path
) -> None:
    bed = tmp_path / "x.bed"
    bed.write_text(
        "# three\na\t100\t160\tfirst\t0\t-\na\t300\t371\tsecond\t0\t+\na\t500\t501\tthird\t0\t.\n"
    )
    rows = [("a", 100, 160, "-"), ("a", 300, 371, "+"), ("a", 500, 501)]
    from_file = model.predict_regions(bed, str(genome))
    with Reference(genome) as opened:
        from_list = model.predict_regions(rows, opened)
    assert from_list["name"].tolist() == ["a:100-160", "a:300-371", "a:500-501"]
    assert from_file["name"].tolist() == ["first", "second", "third"]
    pd.testing.assert_frame_equal(
        from_list.drop(columns="name"), from_file.drop(columns="name")
    )
    table = pd.DataFrame(
        [(*row, None)[:4] for row in rows],
        columns=["chrom", "Start", "end", "strand"],
        index=["x", "y", "z"],
    )
    from_table = model.predict_regions(table, genome)
    assert list(from_table.index) == ["x", "y", "z"]
    pd.testing.assert_frame_equal(from_table.reset_index(drop=True), from_list)
    arrays = model.predict_regions(np.array([["a", "100", "160", "-"]]), genome)
    pd.testing.assert_frame_equal(arrays, from_list.iloc[:1])


def test_a_region_as_long_as_the_window_has_the_score_of_score_promoters(
    promoter: Any, genome: Path, tmp_path: Path
) -> None:
    bigbird_dna.score_promoters(promoter, genome, tmp_path / "x.parquet", stride=70)
    written = pd.read_parquet(tmp_path / "x.parquet")
    found = promoter.predict_regions(
        written[["contig", "start", "end", "strand"]], genome
    )
    np.testing.assert_array_equal(found["score"], written["score"].astype(np.float32))
    with Reference(genome) as opened:
        columns = (written[name] for name in ("contig", "start", "end", "strand"))
        windows = [
            opened.fetch(Interval(*place)) for place in zip(*columns, strict=True)
        ]
    assert len(windows) == 2 * 13
    np.testing.assert_array_equal(promoter.predict(windows), found["score"])
    assert found["strand"].tolist() == written["strand"].tolist()
    places = zip(found["start"], found["strand"], strict=True)
    assert found["site"].tolist() == [
        start + (UP if strand == "+" else DOWN - 1) for start, strand in places
    ]
    # Without a strand the higher of both.
    both = promoter.predict_regions(
        written[["contig", "start", "end"]].iloc[::2], genome
    )
    expected = np.maximum(*(written["score"].to_numpy()[start::2] for start in (0, 1)))
    np.testing.assert_array_equal(both["score"], expected.astype(np.float32))


def test_one_base_is_a_tss_and_a_long_region_is_tiled(
    promoter: Any, genome: Path, sequence: str
) -> None:
    forward, reverse, tiled, shifted = (
        sequence[400 - UP : 400 + DOWN],
        reverse_complement(sequence[400 - DOWN + 1 : 400 + UP + 1]),
        sequence[200:260],
        sequence[230:290],
    )
    scores = promoter.predict([forward, reverse, tiled, shifted])
    rows = [
        ("a", 400, 401, "+"),
        ("a", 400, 401, "-"),
        ("a", 200, 290, "+"),
        ("a", 400, 401),
    ]
    found = promoter.predict_regions(rows, genome, stride=30)
    best = [scores[0], scores[1], max(scores[2:]), max(scores[:2])]
    np.testing.assert_array_equal(found["score"], np.array(best))
    tile = 200 + 30 * int(np.argmax(scores[2:]))
    assert found["site"].tolist() == [400, 400, tile + UP, 400]
    assert found["note"].tolist() == ["."] * 4
    # Between the two lengths every `stride`-th base is looked at.
    near = promoter.predict_regions([("a", 400, 403, "+")], genome, stride=1)
    alone = promoter.predict_regions(
        [("a", place, place + 1, "+") for place in (400, 401, 402)], genome
    )
    assert near["score"][0] == alone["score"].max() and near["site"][0] == 400 + int(
        alone["score"].argmax()
    )


def test_what_cannot_be_scored_is_missing_and_says_why(
    promoter: Any, chromatin: Any, tmp_path: Path
) -> None:
    path = tmp_path / "gap.fa.gz"
    write_fasta(path, [("g", random_dna(300, 1) + "N" * 400 + random_dna(300, 2))])
    rows = [("g", 450, 470), ("g", 5, 6, "+"), ("g", 100, 110)]
    found = promoter.predict_regions(rows, path)
    assert found["score"].isna().tolist() == [True, True, False]
    assert (
        found["site"].isna().tolist() == [True, True, False]
        and found["strand"][0] == "."
    )
    assert found["note"].tolist() == ["too_many_n", "contig_edge;too_many_n", "."]
    tracks = chromatin.predict_regions(rows, path, max_n=0.6)
    assert tracks["note"].tolist() == ["too_many_n", "contig_edge", "."]
    assert tracks["one"].isna().tolist() == [True, False, False]
    effects = chromatin.variant_effects(["g:500:A:C", "g:100:A:C,G,T", "h:1:A:C"], path)
    assert (
        effects["note"].tolist()[0] == "REF_UNKNOWN"
        and effects["note"].tolist()[-1] == "CONTIG_UNKNOWN"
    )
    assert len(effects) == 5
    assert effects["one"].isna().tolist() == (effects["note"] != ".").tolist()


WRONG: dict[str, list[Any]] = {
    "predict_regions": [
        *(None, 3, "missing.bed"),
        *(
            [row]
            for row in (
                "a:1-5",
                ("a", 1),
                ("zz", 1, 5),
                ("a", 5, 5),
                ("a", -1, 5),
                ("a", 1.5, 9),
            )
        ),
        *([row] for row in (("a", 1, True), (1, 1, 9), ("a", 1, 9, "x"))),
        pd.DataFrame({"contig": ["a"], "start": [1]}),
        pd.DataFrame({"chrom": ["a"], "start": [1], "end": [0]}, index=["r"]),
    ],
    "variant_effects": [
        *(None, "missing.vcf"),
        *(
            [row]
            for row in (
                "a:450",
                ("a", 450, "A"),
                ("a", 0, "A", "C"),
                ("a", "x", "A", "C"),
            )
        ),
        *(
            [row]
            for row in (("a", 5, None, "C"), ("a", 5, "A", ""), ("a", 5, "A", "C,"))
        ),
        pd.DataFrame({"contig": ["a"], "pos": [5], "ref": ["A"]}),
    ],
}


@pytest.mark.parametrize("method", WRONG)
def test_what_is_no_region_or_variant_is_one_sentence(
    model: Any, genome: Path, method: str
) -> None:
    for given in WRONG[method]:
        with fails(BigBirdDnaError) as caught:
            getattr(model, method)(given, genome)
        assert "\n" not in str(caught.value)


def test_arguments_out_of_range_are_refused(
    promoter: Any, chromatin: Any, home: Path, genome: Path
) -> None:
    vcf = home / "x.vcf"
    at = [("a", 1, 2)]
    for call in (
        *(
            partial(promoter.predict_regions, at, genome, stride=stride)
            for stride in (0, 2.0, True)
        ),
        *(
            partial(promoter.variant_effects, vcf, genome, stride=stride)
            for stride in (0, 1.5)
        ),
        partial(promoter.predict, "A" * 60, batch_size="8"),
        partial(bigbird_dna.score_promoters, promoter, genome, stride=1.5),
        partial(bigbird_dna.score_variants, promoter, vcf, genome, stride=1.5),
        partial(bigbird_dna.score_variants, chromatin, vcf, genome, offsets=1.5),
        *(
            partial(chromatin.variant_effects, vcf, genome, offsets=offsets)
            for offsets in (1.5, 42)
        ),
        partial(promoter.variant_effects, vcf, genome, max_n=2),
        partial(promoter.variant_effects, vcf, None),
        partial(chromatin.variant_effects, vcf, genome, values="odds"),
        partial(chromatin.predict_regions, at, genome, summary="min"),
        partial(chromatin.variant_effects, vcf, genome, tracks="three"),
    ):
        with fails(UsageError):
            call()
    regions = [("a", 100, 700)]
    for count in (np.int64(20), np.uint8(20)):
        pd.testing.assert_frame_equal(
            promoter.variant_effects(vcf, genome, stride=count, batch_size=count),
            promoter.variant_effects(vcf, genome, stride=20),
        )
        pd.testing.assert_frame_equal(
            promoter.predict_regions(regions, genome, stride=count, batch_size=count),
            promoter.predict_regions(regions, genome, stride=20),
        )


def test_variants_are_one_however_they_are_given(
    model: Any, home: Path, genome: Path, sequence: str
) -> None:
    ref, alt = sequence[449], other(sequence[449])
    expected = model.variant_effects(home / "x.vcf", genome)
    assert expected.iloc[0, :5].tolist() == ["a", 450, ref, alt, "."]
    table = pd.DataFrame({"CHROM": ["a"], "POS": [450], "REF": [ref], "ALT": [alt]})
    for given in (
        str(home / "x.vcf"),
        f"a:450:{ref}:{alt}",
        [f"a:450:{ref}:{alt}"],
        [("a", 450, ref, alt)],
        [("a", np.int64(450), ref, alt)],
        np.array([["a", "450", ref, alt]]),
        table,
    ):
        pd.testing.assert_frame_equal(model.variant_effects(given, genome), expected)
    several = pd.DataFrame(
        {
            "contig": "a",
            "position": [450, 500],
            "ref": [ref, sequence[499]],
            "alt": [f"{alt},<DEL>", "*"],
        },
        index=["x", "y"],
    )
    found = model.variant_effects(several, genome)
    assert found.index.tolist() == ["x", "x", "y"]
    assert found["note"].tolist() == [".", "SYMBOLIC", "SPANNING_DELETION"]
    pd.testing.assert_frame_equal(found.iloc[:1].reset_index(drop=True), expected)
    assert model.variant_effects([], genome).shape == (0, expected.shape[1])


def test_an_effect_on_promoters_is_that_of_the_edited_contig(
    promoter: Any, genome: Path, sequence: str, tmp_path: Path
) -> None:
    place = 449
    edited = sequence[:place] + other(sequence[place]) + sequence[place + 1 :]
    write_fasta(tmp_path / "edited.fa.gz", [("a", edited)])
    variant = f"a:450:{sequence[place]}:{edited[place]}"
    ((_, row),) = promoter.variant_effects(variant, genome, stride=1).iterrows()
    around = [
        ("a", site, site + 1, strand) for strand in "+-" for site in range(400, 500)
    ]
    ref, alt = (
        promoter.predict_regions(around, path)
        for path in (genome, tmp_path / "edited.fa.gz")
    )
    changes = alt["score"] - ref["score"]
    assert 0 < (changes != 0).sum() <= 2 * (UP + DOWN)
    number = changes.abs().idxmax()
    best = ref["site"][number] + 1, ref["strand"][number]
    assert (row["site"], row["strand"]) == best
    assert [row["ref_score"], row["alt_score"]] == [
        ref["score"][number],
        alt["score"][number],
    ]
    assert row["delta"] == row["alt_score"] - row["ref_score"]
    # With sites only those count whose window covers the variant.
    sites = (
        [("a", best[0] - 1, best[0] + 5, "+"), ("a", 10, 11, "+")]
        if best[1] == "+"
        else [("a", best[0] - 6, best[0], "-"), ("a", 10, 11, "+")]
    )
    ((_, again),) = promoter.variant_effects(variant, genome, sites=sites).iterrows()
    assert again.tolist() == row.tolist()
    far = promoter.variant_effects(variant, genome, sites=[("a", 10, 11)])
    assert (
        far["note"].tolist() == ["NO_SITE"]
        and far["delta"].isna().all()
        and far["site"].isna().all()
    )


def test_an_alias_file_tells_the_names_of_contigs(
    model: Any, genome: Path, sequence: str, tmp_path: Path
) -> None:
    aliases = tmp_path / "names.tsv"
    aliases.write_text("NC_1\ta\n")
    change = f"450:{sequence[449]}:{other(sequence[449])}"
    regions = model.predict_regions([("a", 100, 160, "-"), ("a", 300, 371)], genome)
    effects = model.variant_effects(f"a:{change}", genome)
    asked = [("NC_1", 100, 160, "-"), ("NC_1", 300, 371)]
    with Reference(genome, aliases) as opened:
        ways: list[tuple[Any, dict[str, Any]]] = [
            (opened, {}),
            (genome, {"aliases": aliases}),
            (str(genome), {"aliases": str(aliases)}),
        ]
        for reference, named in ways:
            pd.testing.assert_frame_equal(
                model.predict_regions(asked, reference, **named), regions
            )
            found = model.variant_effects(f"NC_1:{change}", reference, **named)
            assert found["contig"].tolist() == ["NC_1"], "as it was given"
            pd.testing.assert_frame_equal(
                found.drop(columns="contig"), effects.drop(columns="contig")
            )
            if model.task == "promoter":
                at = model.variant_effects(
                    f"NC_1:{change}", reference, sites=[("NC_1", 440, 441)], **named
                )
                assert at["note"].tolist() == ["."] and at["site"].tolist() == [441]
        with fails(UsageError):
            model.predict_regions(asked, opened, aliases=aliases)
    assert model.variant_effects(f"NC_1:{change}", genome)["note"].tolist() == [
        "CONTIG_UNKNOWN"
    ]


def test_sites_beside_the_reference_are_counted(
    promoter: Any, genome: Path, sequence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    variant = f"a:450:{sequence[449]}:{other(sequence[449])}"
    sites = [("a", 440, 441), ("zz", 5, 6), ("zz", 7, 8), ("a", 899, 901)]
    assert promoter.variant_effects(variant, genome, sites=sites)["site"].tolist() == [
        441
    ]
    message(capsys.readouterr().err, "(zz)", "(a)", genome)


def test_a_region_beside_the_reference_is_noted(
    model: Any, genome: Path, tmp_path: Path
) -> None:
    rows = [("a", 300, 320), ("zz", 1, 5), ("a", 890, 901), ("a", 100, 160)]
    (tmp_path / "x.bed").write_text("".join(f"{c}\t{s}\t{e}\n" for c, s, e in rows))
    for given in (rows, tmp_path / "x.bed"):
        found = model.predict_regions(given, genome)
        assert found["note"].tolist() == [".", "contig_unknown", "beyond_contig", "."]
        alone = model.predict_regions([rows[0], rows[3]], genome)
        pd.testing.assert_frame_equal(found.iloc[[0, 3]].reset_index(drop=True), alone)
        column = "score" if model.task == "promoter" else "one"
        assert found[column].isna().tolist() == [False, True, True, False]


# Effects on promoters in files

OWN = (
    "PROMOTER_REF",
    "PROMOTER_ALT",
    "PROMOTER_DELTA",
    "PROMOTER_SITE",
    "PROMOTER_STRAND",
)


@pytest.fixture(scope="module")
def vcf(home: Path, sequence: str) -> Path:
    """An SNV with two ALTs, a deletion, an insertion, and what can't be scored."""
    path, bases = home / "several.vcf", sequence
    others = [base for base in "ACGT" if base != bases[299]]
    rows = [
        (300, bases[299], f"{others[0]},{others[1]}"),
        (400, bases[399:403], bases[399]),
        (500, bases[499], f"{bases[499]}GATTACA,<DEL>"),
        (600, others[0] + "GGGGG", "A"),
    ]
    lines = [
        f"a\t{pos}\tid{pos}\t{ref}\t{alt}\t9\tPASS\tDP=3\n" for pos, ref, alt in rows
    ]
    header = '##fileformat=VCFv4.2\n##contig=<ID=a>\n##INFO=<ID=DP,Number=1,Type=Integer,Description="d">\n'
    header += '##FILTER=<ID=PASS,Description="p">\n'
    path.write_text(
        header + "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n" + "".join(lines)
    )
    return path


def test_a_vcf_and_a_table_say_what_the_method_says(
    run: Run, home: Path, vcf: Path, tmp_path: Path
) -> None:
    genome = home / "genome.fa.gz"
    outputs = tmp_path / "x.vcf.gz", tmp_path / "x.tsv"
    for output in outputs:
        result = run(
            "score-variants",
            home / "promoter",
            vcf,
            "--reference",
            genome,
            "-o",
            output,
        )
        assert (
            result.code == 0
            and "4 records: 4 alternative alleles scored, 2 not" in result.err
        )
    model: Any = bigbird_dna.load(home / "promoter")
    expected = model.variant_effects(vcf, genome)
    found = pd.read_csv(outputs[1], sep="\t", skiprows=3)
    columns = ["#contig", "position", "ref", "alt", "id", "note"]
    assert list(found.columns) == [
        *columns,
        "ref_score",
        "alt_score",
        "delta",
        "site",
        "strand",
    ]
    assert (
        found["note"].tolist()
        == expected["note"].tolist()
        == [".", ".", ".", ".", "SYMBOLIC", "REF_MISMATCH"]
    )
    for name in ("ref_score", "alt_score", "delta"):
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-5, atol=1e-9)
    assert found["site"][:4].tolist() == expected["site"][:4].tolist()
    assert found["strand"][:4].tolist() == expected["strand"][:4].tolist()

    with pysam.VariantFile(str(outputs[0])) as written:
        assert set(OWN) | {"NOTE"} == {
            key[4:] for key in written.header.info if key.startswith("BBD_")
        }
        records = list(written)
    rows = [
        row
        for record in records
        for row in zip(*(_values(record, key) for key in OWN), strict=True)
    ]
    assert len(rows) == 6 and rows[4:] == [(None,) * 5] * 2
    for row, wanted in zip(rows[:4], expected.itertuples(), strict=False):
        assert row[3:] == (wanted.site, wanted.strand)
        np.testing.assert_allclose(
            row[:3], [wanted.ref_score, wanted.alt_score, wanted.delta], rtol=2e-5
        )
    assert [record.info["DP"] for record in records] == [3] * 4
    assert Path(f"{outputs[0]}.tbi").exists()


def _values(record: Any, key: str) -> tuple[Any, ...]:
    values = record.info.get(f"BBD_{key}", (None,) * len(record.alts))
    return tuple(None if value == "." else value for value in values)


def test_sites_and_stride_are_kept_to(
    run: Run, home: Path, vcf: Path, tmp_path: Path
) -> None:
    genome, output = home / "genome.fa.gz", tmp_path / "x.tsv"
    words = (
        "score-variants",
        home / "promoter",
        vcf,
        "--reference",
        genome,
        "-o",
        output,
    )
    (tmp_path / "sites.bed").write_text(
        "a\t290\t310\tx\t0\t-\na\t490\t491\nnowhere\t4\t5\na\t899\t901\na\t2000\t2001\n"
    )
    result = run(*words, "--tss", tmp_path / "sites.bed")
    assert result.code == 0
    warned = [
        line.partition("warning: ")[2]
        for line in result.err.splitlines()
        if "warning: " in line
    ]
    message("\n".join(warned), tmp_path / "sites.bed", genome, "(nowhere)", "(a)")
    lines = output.read_text().splitlines()
    assert (
        "--tss" in lines[2]
        and "--stride" not in lines[2]
        and "--offsets" not in lines[2]
    )
    found = pd.read_csv(output, sep="\t", skiprows=3)
    assert found["note"].tolist() == [
        ".",
        ".",
        "NO_SITE",
        ".",
        "SYMBOLIC",
        "REF_MISMATCH",
    ]
    assert found["site"][:2].tolist() == [310, 310] and found["strand"][
        :2
    ].tolist() == ["-", "-"]
    assert found["site"][3] == 491
    assert run(*words, "--stride", 1).code == 0
    close = pd.read_csv(output, sep="\t", skiprows=3)
    assert run(*words).code == 0
    wide = pd.read_csv(output, sep="\t", skiprows=3)
    assert (close["delta"].abs() >= wide["delta"].abs() - 1e-9)[:4].all()
    for text, named in (
        ("q\t290\t310\n", "(q)"),
        ("a\t290\t310\tx\t0\tx\n", "line 1"),
        ("a\t1990\t2000\n", ""),
        ("a\t401\t461\tx\t900\t+\t470\t481\n", "470-481"),
    ):
        (tmp_path / "sites.bed").write_text(text)
        refused(
            run(*words, "--tss", tmp_path / "sites.bed"),
            1,
            "sites.bed",
            named,
            after_log=True,
        )


# EPDnew's BED: 60 bp from 49 bp before the TSS to 10 bp after it, of which the thick part begins at the TSS.
EPD_FORWARD, EPD_REVERSE = (
    "a 401 461 x_1 900 + 450 461\n",
    "a 440 500 x_2 900 - 440 451\n",
)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("epd.bed", EPD_FORWARD.replace(" ", "\t"), (451, "+")),
        ("epd.bed", EPD_FORWARD, (451, "+")),
        ("epd.bed", EPD_REVERSE.replace(" ", "\t"), (451, "-")),
        ("epd.bed", EPD_REVERSE, (451, "-")),
        ("empty_part.bed", "a\t450\t460\tx\t900\t+\t450\t450\n", (451, "+")),
        ("empty_part.bed", "a\t440\t451\tx\t900\t-\t0\t0\n", (451, "-")),
        (
            "coding_part.bed",
            "a\t450\t460\tx\t0\t+\t455\t460\t0\t1\t10,\t0,\n",
            (451, "+"),
        ),
        ("six.bed", "a 440 451 x 900 -\n", (451, "-")),
        ("epd.sga", "a\tTSS\t451\t-\t1\tx_1\n", (451, "-")),
        ("prepared.tsv", "contig\tposition\tstrand\tname\na\t450\t+\tx\n", (451, "+")),
    ],
)
def test_tss_files_mean_what_they_mean_to_prepare_promoters(
    promoter: Any,
    genome: Path,
    sequence: str,
    tmp_path: Path,
    name: str,
    text: str,
    expected: tuple[int, str],
) -> None:
    path = tmp_path / name
    path.write_text(text)
    variant = f"a:452:{sequence[451]}:{other(sequence[451])}"
    found = promoter.variant_effects(variant, genome, sites=path)
    assert [*zip(found["site"], found["strand"], strict=True)] == [expected]
    assert [(x.position + 1, x.strand) for x in read_promoters(path)] == [expected]


def test_columns_of_bed_may_be_separated_by_spaces(
    model: Any, genome: Path, tmp_path: Path
) -> None:
    text = "a 300 320 x 0 -\na  100 160   y 5 + 9\n"
    (tmp_path / "spaces.bed").write_text(text)
    (tmp_path / "tabs.bed").write_text(
        "a\t300\t320\tx\t0\t-\na\t100\t160\ty\t5\t+\t9\n"
    )
    spaces, tabs = (
        model.predict_regions(tmp_path / name, genome)
        for name in ("spaces.bed", "tabs.bed")
    )
    pd.testing.assert_frame_equal(spaces, tabs)
    if model.task == "promoter":
        assert spaces["strand"].tolist() == ["-", "+"]


def test_a_table_with_thick_parts_is_read_like_its_bed_file(
    promoter: Any, genome: Path, sequence: str
) -> None:
    """The columns of bioframe's schemas."""
    variant = f"a:452:{sequence[451]}:{other(sequence[451])}"
    table = pd.DataFrame(
        [("a", 401, 461, "+", 450, 461)],
        columns=["chrom", "start", "end", "strand", "thickStart", "thickEnd"],
    )
    for given, site in (
        (table, 451),
        (table.assign(thickStart=451, thickEnd=451, start=450), 451),
        (table.assign(blockCount=1, start=450), 451),
        (table.assign(thickStart=pd.NA, start=450), 451),
    ):
        assert promoter.variant_effects(variant, genome, sites=given)[
            "site"
        ].tolist() == [site]
    with fails(UsageError, "470-480"):
        promoter.variant_effects(
            variant, genome, sites=table.assign(thickStart=470, thickEnd=480)
        )


def test_score_variants_finds_epd_s_start_sites(
    run: Run, home: Path, sequence: str, tmp_path: Path
) -> None:
    bed, vcf, output = tmp_path / "epd.bed", tmp_path / "x.vcf", tmp_path / "x.tsv"
    bed.write_text(EPD_FORWARD)
    record = f"a\t452\t.\t{sequence[451]}\t{other(sequence[451])}\t.\t.\t.\n"
    vcf.write_text(
        "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n" + record
    )
    words = (
        "score-variants",
        home / "promoter",
        vcf,
        "--reference",
        home / "genome.fa.gz",
        "-o",
        output,
    )
    result = run(*words, "--tss", bed)
    assert result.code == 0
    message(result.err, "thick part (EPD's BED) (1)")
    found = pd.read_csv(output, sep="\t", skiprows=3)
    assert found[["site", "strand"]].to_numpy().tolist() == [[451, "+"]]


# Sequences that a Python user gives to `predict` and `embed`: each trap is a sentence or a right answer


WINDOWS = {"promoter": 60, "chromatin": 120}


def window(model: Any, seed: int = 0) -> str:
    return random_dna(WINDOWS[model.task], seed)


def test_every_form_gives_the_same_bits(model: Any) -> None:
    texts = [window(model, seed) for seed in range(4)]
    expected = model.predict(texts)
    forms = [
        tuple(texts),
        np.array(texts),
        np.array(texts, dtype=object),
        pd.Index(texts),
        (text for text in texts),
        [Seq(text) for text in texts],
        [MutableSeq(text) for text in texts],
        [SeqRecord(Seq(text), id="r", description="no letters") for text in texts],
        [text.lower() for text in texts],
        pd.array(texts, dtype="string"),
    ]
    for form in forms:
        np.testing.assert_array_equal(model.predict(form), expected)
    assert model.embed(texts[0]).shape == (1, 16)
    for single in (
        texts[0],
        np.array(texts[0]),
        Seq(texts[0]),
        SeqRecord(Seq(texts[0]), id="r"),
    ):
        np.testing.assert_array_equal(model.predict(single), expected[:1])
        np.testing.assert_array_equal(model.embed(single), model.embed(texts[0]))


def test_a_series_comes_back_with_its_index(promoter: Any, chromatin: Any) -> None:
    for model in (promoter, chromatin):
        texts = pd.Series(
            [window(model, seed) for seed in range(3)],
            index=["x", "y", "x"],
            name="dna",
        )
        found, expected = model.predict(texts), model.predict(list(texts))
        assert list(found.index) == ["x", "y", "x"]
        if model is promoter:
            assert isinstance(found, pd.Series) and found.name == "probability"
            np.testing.assert_array_equal(found.to_numpy(), expected)
        else:
            assert isinstance(found, pd.DataFrame) and list(found.columns) == [
                "one",
                "two",
            ]
            np.testing.assert_array_equal(found.to_numpy(), expected[:, 0])
        vectors = model.embed(texts)
        assert isinstance(vectors, pd.DataFrame) and vectors.index.equals(texts.index)
        np.testing.assert_array_equal(vectors.to_numpy(), model.embed(list(texts)))
    with fails(UsageError):
        chromatin.predict(pd.Series([window(chromatin)]), center_fraction=0.5)


def test_nothing_in_gives_nothing_out(promoter: Any, chromatin: Any) -> None:
    assert promoter.predict([]).shape == (0,) and chromatin.predict([]).shape == (
        0,
        1,
        2,
    )
    assert promoter.embed([]).shape == (0, 16)
    assert promoter.embed([], pool="base").shape == (0, 0, 16)
    empty = pd.Series([], dtype=object)
    assert promoter.predict(empty).shape == (0,) and chromatin.predict(empty).shape == (
        0,
        2,
    )


NO_SEQUENCES: list[Any] = [
    *(None, 7, b"ACGT", {"a": "ACGT"}, {"ACGT"}, "", Seq(None, length=4)),
    *(["ACGT", None], [b"ACGT"], [1, 2], [["ACGT"]], ["ACGT", ""]),
    *(pd.DataFrame({"dna": ["ACGT"]}), np.array([["ACGT"]]), np.array([b"ACGT"])),
    *(
        pd.Series(["ACGT", np.nan], index=["x", "y"]),
        pd.Series(["ACGT", None], dtype="string"),
    ),
]


@pytest.mark.parametrize("method", ["predict", "embed"])
def test_what_is_not_sequences_is_one_sentence(model: Any, method: str) -> None:
    for given in NO_SEQUENCES:
        with fails(UsageError) as caught:
            getattr(model, method)(given)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_other_letters_are_named_with_index_and_position(model: Any) -> None:
    text = window(model)
    for letter, hint in (
        ("U", "RNA"),
        ("E", "protein"),
        ("é", "'é'"),
        ("-", "'-'"),
        ("\n", "0x0a"),
    ):
        wrong = text[:9] + letter + text[10:]
        for method in (model.predict, model.embed):
            with fails(DataError, hint):
                method([text, wrong])
            with fails(DataError):
                method(wrong)


def test_codes_for_several_bases_are_n(model: Any) -> None:
    text = window(model)
    coded, plain = (text[:20] + letters + text[24:] for letters in ("RywM", "NNNN"))
    np.testing.assert_array_equal(model.predict(coded), model.predict(plain))
    np.testing.assert_array_equal(model.embed(coded), model.embed(plain))


def test_other_lengths_are_refused_by_name(model: Any) -> None:
    text, size = window(model), WINDOWS[model.task]
    for given, *named in (
        ([text, text[1:]], "sequences[1]", size - 1, size),
        (text + "ACG", size + 3),
        (pd.Series([text + "A"], index=["a"]), size + 1),
    ):
        with fails(UsageError, *named):
            model.predict(given)


def test_a_short_sequence_is_a_contig_of_its_own_to_a_chromatin_model(
    chromatin: Any, tmp_path: Path
) -> None:
    text = random_dna(96, 5)
    (tmp_path / "x.fa").write_text(f">x\n{text}\n")
    (tmp_path / "x.bed").write_text("x\t38\t58\n")  # the bin in its middle
    table = chromatin.predict_regions(tmp_path / "x.bed", tmp_path / "x.fa")
    assert table["note"].tolist() == ["contig_edge"]
    np.testing.assert_array_equal(
        chromatin.predict(text, pad=True)[:, 0], table[["one", "two"]].to_numpy()
    )
    # Of 80 bp, a third of the window is what was filled up with.
    assert np.isnan(chromatin.predict(text[:80], pad=True)).all()
    assert not np.isnan(chromatin.predict(text[:80], pad=True, max_n=0.5)).any()


def test_a_long_sequence_keeps_its_middle(model: Any) -> None:
    text = window(model)
    for left, right in ((3, 3), (10, 11)):
        long = random_dna(left, 1) + text + random_dna(right, 2)
        np.testing.assert_array_equal(
            model.predict(long, pad=True), model.predict(text)
        )


def test_mostly_n_has_no_score(model: Any) -> None:
    text, size = window(model), WINDOWS[model.task]
    quarter = size // 4
    rows = [
        "N" * size,
        "N" * quarter + text[quarter:],
        "N" * (quarter + 1) + text[quarter + 1 :],
        text,
    ]
    found = model.predict(rows)
    assert [bool(np.isnan(row).all()) for row in found] == [True, False, True, False]
    assert [bool(np.isnan(row).any()) for row in found] == [True, False, True, False]
    np.testing.assert_array_equal(found[[1, 3]], model.predict([rows[1], rows[3]]))
    assert not np.isnan(model.predict(rows, max_n=1)).any()
    for wrong in ({"max_n": 1.5}, {"batch_size": 0}, {"device": "gpu"}):
        with fails(UsageError):
            model.predict(text, **wrong)


def test_each_base_has_the_vector_of_its_token(model: Any) -> None:
    texts = [random_dna(70, 1), random_dna(70, 2)[:30] + "N" * 20 + random_dna(20, 3)]
    found = model.embed(texts, pool="base")
    assert found.shape == (2, 70, 16) and found.dtype == np.float32
    for text, vectors in zip(texts, found, strict=True):
        ids, offsets = model.tokenizer.encode_with_offsets(text)
        changes = np.flatnonzero((np.diff(vectors, axis=0) != 0).any(axis=1)) + 1
        assert set(changes.tolist()) <= set(offsets[1:-1].tolist())
        assert len(changes) > len(ids) / 2
    several = model.embed([texts[0], texts[1][:33]], pool="base")
    assert isinstance(several, list) and [len(one) for one in several] == [70, 33]
    np.testing.assert_array_equal(several[0], found[0])
    series = model.embed(pd.Series(texts, index=["a", "b"]), pool="base")
    assert list(series.index) == ["a", "b"]
    np.testing.assert_array_equal(series["b"], found[1])


def test_embeddings_against_the_encoder(promoter: Any) -> None:
    import torch

    text = random_dna(50, 3)
    ids, offsets = promoter.tokenizer.encode_with_offsets(text)
    row = torch.tensor([[promoter.tokenizer.cls_id, *ids, promoter.tokenizer.sep_id]])
    with torch.inference_mode():
        hidden = promoter.network.encoder(row, torch.tensor([row.shape[1]]))[0]
    found = promoter.embed(text, pool="base", device="cpu")[0]
    for place in range(50):
        token = int(np.searchsorted(offsets, place, side="right")) - 1
        np.testing.assert_allclose(
            found[place], hidden[1 + token], atol=1e-5, rtol=1e-5
        )
    cls, mean = (
        promoter.embed([text, "ACGT" * 12], pool=pool)[0] for pool in ("cls", "mean")
    )
    np.testing.assert_allclose([cls, mean], [hidden[0], hidden.mean(0)], atol=1e-5)


def test_what_per_base_cannot_do_says_so(promoter: Any) -> None:
    with fails(UsageError):
        promoter.embed(["ACGT", random_dna(2000, 1)], pool="base")
    with fails(UsageError):
        promoter.embed("ACGT", pool="base", layer=9)


def test_a_model_of_another_task_says_what_it_is_for(
    home: Path, tmp_path: Path
) -> None:
    promoter, chromatin = (
        bigbird_dna.load(home / "promoter"),
        bigbird_dna.load(home / "chromatin"),
    )
    config = promoter.config.model_copy(
        update={"vocabulary": small_tokenizer().vocabulary}
    )
    pretrained = random_model(small_tokenizer(), config, PretrainingSettings())
    from bigbird_dna.model.directory import save

    save(tmp_path / "pretrained", pretrained, {}, {}, {})
    loaded = bigbird_dna.load(tmp_path / "pretrained")
    genome, bed = home / "genome.fa.gz", home / "regions.bed"
    wrong = {
        "predict": lambda: loaded.predict("ACGT"),
        "predict_regions": lambda: loaded.predict_regions(bed, genome),
    }
    for name, call in wrong.items():
        with fails(ModelError, loaded.path, name):
            call()
    assert loaded.embed("ACGT" * 9).shape == (1, 16)
    for function, *arguments in (
        (bigbird_dna.score_promoters, chromatin, genome),
        (bigbird_dna.score_promoters, loaded, genome),
        (bigbird_dna.predict_tracks, promoter, bed, genome),
    ):
        with fails(ModelError):
            function(*arguments, tmp_path / "x")
    with fails(ModelError):
        bigbird_dna.score_promoters(pretrained, genome, tmp_path / "x")
    for given in (None, 3, b"x"):
        with fails(UsageError):
            bigbird_dna.load(given)  # type: ignore[arg-type]


def test_a_model_shows_itself_in_a_line(home: Path) -> None:
    for name, parts in {
        "promoter": (
            "PromoterModel(promoter, window 60 bp with the TSS at 40",
            "1 layer × 16",
        ),
        "chromatin": (
            "ChromatinModel(chromatin, window 120 bp with a bin of 20, 2 tracks",
        ),
        "ensemble": ("ChromatinModel(chromatin, window 120 bp",),
    }.items():
        model = bigbird_dna.load(home / name)
        shown = repr(model)
        assert all(part in shown for part in parts), shown
        assert f"{model.parameters:,} parameters, {home / name})" in shown
        assert "\n" not in shown and len(shown) < 250


def test_a_vcf_of_another_assembly_is_an_error_wherever_variants_are_read(
    model: Any, genome: Path, sequence: str, tmp_path: Path
) -> None:
    """Most of its REF differ; a record that differs among others is noted."""
    path, out = tmp_path / "x.vcf", tmp_path / "out"

    def write_vcf(wrong: int) -> None:
        refs = [
            other(sequence[at]) if at < 300 + wrong else sequence[at]
            for at in range(300, 305)
        ]
        lines = [
            f"a\t{301 + at}\t.\t{ref}\t{ref}T\t.\t.\t.\n" for at, ref in enumerate(refs)
        ]
        path.write_text(VCF + "".join(lines))

    write_vcf(3)
    told = f"{path}: REF of 3 of the 5 records differs from {genome}"
    with fails(DataError, told):
        model.variant_effects(path, genome)
    with fails(DataError, told):
        explain(model, path, out, reference=genome)
    assert not out.exists()
    write_vcf(2)
    assert (
        model.variant_effects(path, genome)["note"].tolist()
        == ["REF_MISMATCH"] * 2 + ["."] * 3
    )
