"""Commands that score x formats: functions and commands write the same bytes; wrong inputs are refused."""

import itertools
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import bigbird_dna
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.intervals import find_places, parse_region
from bigbird_dna.model import inference
from bigbird_dna.model.promoter import LoadedPromoterModel
from tests.cli.command import Result, Run, refused
from tests.golden.messages import fails
from tests.scoring.conftest import RECORDS, SOME
from tests.scoring.same_scores import assert_same_scores
from tests.toys import hashed

WINDOW, STRIDE = 60, 25


class Case(NamedTuple):
    """A scorer: its function and command, what it reads in `home`, and the file of each of its formats."""

    function: Callable[..., Any]
    command: str
    model: str
    source: str
    files: dict[str, str]
    ways: tuple[dict[str, Any], ...]

    def inputs(self, home: Path) -> tuple[Path, ...]:
        return (home / self.source, home / "genome.fa.gz")[
            : 1 + (self.command != "score-promoters")
        ]

    def words(self, home: Path, model: str = "") -> list[object]:
        source, *reference = self.inputs(home)
        named = [word for path in reference for word in ("--reference", path)]
        return [self.command, home / (model or self.model), source, *named]


SCAN = {
    "tsv": "x.tsv.gz",
    "bed": "x.bed",
    "bedgraph": "x.bg.gz",
    "bigwig": "x.bw",
    "parquet": "x.parquet",
}
TABLES = {"tsv": "x.tsv", "bed": "x.bed", "bigwig": "x.bw", "parquet": "x.parquet"}
EFFECTS = {"vcf": "x.vcf.gz", "tsv": "x.tsv.gz"}
PLACES: dict[str, Any] = {"contigs": ["long", "last", "gap"], "regions": "some.bed"}
CASES = {
    "scan": Case(
        *(
            bigbird_dna.score_promoters,
            "score-promoters",
            "promoter",
            "genome.fa.gz",
            SCAN,
        ),
        ({"stride": STRIDE}, {**PLACES, "stride": 10, "strand": "-"}),
    ),
    "regions": Case(
        *(
            bigbird_dna.predict_tracks,
            "predict-tracks",
            "chromatin",
            "regions.bed",
            TABLES,
        ),
        ({"summary": "mean"}, {"center_fraction": 0.5, "contigs": ["long", "last"]}),
    ),
    "effects": Case(
        *(bigbird_dna.score_variants, "score-variants", "chromatin", "x.vcf", EFFECTS),
        ({"offsets": 1, "tracks": "*"}, {**PLACES, "offsets": 2}),
    ),
    "likelihoods": Case(
        *(
            bigbird_dna.score_variants,
            "score-variants",
            "pretraining",
            "x.vcf",
            EFFECTS,
        ),
        ({"offsets": 1}, {**PLACES, "offsets": 2}),
    ),
}
EVERY = [(name, format) for name, case in CASES.items() for format in case.files]


@pytest.fixture(scope="module")
def load(home: Path) -> Callable[[str], Any]:
    """The models of `home`, each loaded once."""
    return cache(lambda name: bigbird_dna.load(home / name))


def flags(options: dict[str, Any]) -> list[object]:
    """A function's options as the command's."""
    names = {
        "contigs": "--contig",
        "center_fraction": "--center-fraction",
        "output": "-o",
    }
    given = [
        (names.get(key, f"--{key.replace('_', '-')}"), value)
        for key, value in options.items()
    ]
    return [
        word
        for name, value in given
        for one in (value if isinstance(value, list) else [value])
        for word in (name, one)
    ]


def rows(result: Result) -> list[list[str]]:
    assert result.code == 0, result.err
    return [
        line.split("\t")
        for line in result.out.splitlines()
        if not line.startswith(("#", "contig\t"))
    ]


def written(directory: Path) -> dict[str, bytes]:
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    shutil.rmtree(directory)
    directory.mkdir()
    return files


@pytest.mark.parametrize(("name", "format"), EVERY)
def test_function_and_command_write_the_same_scores(
    run: Run,
    load: Callable[[str], Any],
    home: Path,
    tmp_path: Path,
    name: str,
    format: str,
) -> None:
    """The command knows the format by the file's ending; batches of other sizes have the same scores."""
    case = CASES[name]
    for options in case.ways:
        options = {**options, "threads": 1}
        if "regions" in options:
            options["regions"] = home / options["regions"]
        if (name, format) == ("regions", "bigwig"):
            options["tracks"] = "two"

        def job(options: dict[str, Any] = options, **more: Any) -> None:
            case.function(
                load(case.model), *case.inputs(home), format=format, **options, **more
            )

        made, file = tmp_path / "made", case.files[format]
        made.mkdir(exist_ok=True)
        job(output=made / file)
        whole = written(made)
        assert len(whole[file]) > 100
        assert run(*case.words(home), "-o", made / file, *flags(options)).code == 0
        assert written(made) == whole
        job(output=made / file, batch_size=3)
        for key, content in written(made).items():
            assert_same_scores(content, whole[key], key)


@pytest.mark.parametrize("name", CASES)
def test_contigs_and_regions_choose_rows_of_the_whole(
    run: Run, home: Path, tmp_path: Path, name: str
) -> None:
    case, bed = CASES[name], tmp_path / "x.bed"
    words = [*case.words(home), "--format", "tsv"]
    whole = rows(run(*words))
    for contigs in (["last"], ["gap", "long"]):
        result = run(*words, *flags({"contigs": contigs}))
        assert rows(result) == [row for row in whole if row[0] in contigs] != []
        assert (
            "".join(f" --contig {contig}" for contig in contigs)
            in result.out.splitlines()[2]
        )
    refused(run(*words, "--contig", "chr9"), 1, home / "genome.fa.gz", "chr9")
    some = run(*words, "--contig", "chr9", "--contig", "last")
    assert rows(some) == [row for row in whole if row[0] == "last"]
    assert f"warning: {home / 'genome.fa.gz'}" in some.err and " chr9" in some.err
    if case.command == "predict-tracks":
        return
    for strand in "+-" if name == "scan" else ():
        assert rows(run(*words, "--strand", strand)) == [
            row for row in whole if row[5] == strand
        ]

    def inside(row: list[str]) -> bool:
        place = int(row[1])
        first, last = (
            (place, int(row[2]))
            if name == "scan"
            else (place - 1, place - 1 + len(row[2]))
        )
        return any(
            row[0] == c and first < end and start < last for c, start, end in SOME
        )

    chosen = [row for row in whole if inside(row)]
    assert 0 < len(chosen) < len(whole)
    result = run(*words, "--regions", home / "some.bed")
    assert rows(result) == chosen and f"--regions {home / 'some.bed'}" in result.out
    for contig in ("last", "tiny"):
        found = run(*words, "--regions", home / "some.bed", "--contig", contig)
        assert rows(found) == [row for row in chosen if row[0] == contig]
    bed.write_text("x\t0\t10\nlast\t0\t10\n")
    assert f"warning: {bed}: 1 regions" in run(*words, "--regions", bed).err
    for text in ("x\t0\t10\ny\t0\t10\n", "last\t9\t5\n"):
        bed.write_text(text)
        refused(run(*words, "--regions", bed), 1, bed)
    refused(run(*words, "--regions", tmp_path / "none.bed"), 1, "none.bed")
    refused(run(*words, "--regions", bed, "-o", bed), 2, bed)


def test_a_signal_in_regions_is_that_of_a_whole_scan(run: Run, home: Path) -> None:
    def bases(*words: object) -> dict[tuple[str, int], str]:
        found = rows(
            run(
                *CASES["scan"].words(home),
                "--stride",
                17,
                "--format",
                "bedgraph",
                *words,
            )
        )
        return {
            (row[0], base): row[3]
            for row in found
            for base in range(int(row[1]), int(row[2]))
        }

    whole = bases()
    inside = {
        place
        for c, start, end in SOME
        for place in itertools.product([c], range(start, end))
    }
    assert bases("--regions", home / "some.bed") == {
        place: whole[place] for place in inside & whole.keys()
    }


def test_contigs_under_their_other_names(tmp_path: Path) -> None:
    known = {"chr21": 48_129_895, "chr22": 51_304_566}
    (tmp_path / "x.bed").write_text("22\t10\t20\nNC_000021.8\t5\t9\nchr22\t15\t30\n")
    places = find_places(["22", "CM000683.1"], tmp_path / "x.bed", known, "x.fa", None)
    assert places is not None
    assert (
        list(places.clipped("chr22", 0, 100))
        == [(10, 30)]
        == list(places.clipped("22", 0, 100))
    )
    assert places.overlaps("21", 8, 9) and not places.overlaps("21", 9, 10)
    assert not places.overlaps("chr22", 30, 31) and places.overlaps("chr22", 29, 31)
    assert find_places([], None, known, "x.fa", None) is None
    with fails(DataError):
        find_places(["1"], None, known, "x.fa", None)


@pytest.mark.parametrize(
    ("text", "region"),
    [
        ("chr6:1-1000", ("chr6", 0, 1000)),
        ("chr6:1,001-2,000", ("chr6", 1000, 2000)),
        ("HLA:x:7", ("HLA:x", 6, None)),
        ("6:7-", ("6", 6, None)),
        *((text, None) for text in ("chr6", "chr6:", "chr6:a-b", "chr6:-5")),
    ],
)
def test_regions_are_written_as_for_samtools(
    text: str, region: tuple[str, int, int | None] | None
) -> None:
    assert parse_region(text) == region


def test_parts_of_contigs_are_selected(tmp_path: Path) -> None:
    known = {"chr22": 1000, "HLA:1-5": 50}
    (tmp_path / "x.bed").write_text("chr22\t90\t210\n")
    for contigs, regions, clipped in (
        (["22:101-200"], None, [(100, 200)]),
        ([], "chr22:901", [(900, 1000)]),
        (["22:101-200", "chr22:151-300"], None, [(100, 300)]),
        (["22:101-150", "chr22:301-400"], "22:141-310", [(140, 150), (300, 310)]),
        (["22:101-200"], tmp_path / "x.bed", [(100, 200)]),
        (["HLA:1-5"], None, []),
    ):
        places = find_places(contigs, regions, known, "x.fa", None)
        assert places is not None
        assert list(places.clipped("chr22", 0, 1000)) == clipped
        assert places.on("HLA:1-5") == (contigs == ["HLA:1-5"])
    for wrong in ("22:0-5", "22:9-8"):
        with fails(UsageError, wrong):
            find_places([wrong], None, known, "x.fa", None)


@pytest.mark.parametrize("name", ["regions", "effects"])
def test_an_alias_file_has_the_names_of_contigs(
    run: Run, home: Path, tmp_path: Path, name: str
) -> None:
    """Of regions, records and contigs."""
    case, aliases = CASES[name], tmp_path / "names.tsv"
    aliases.write_text("NC_1\tlong\n")
    for file in ("regions.bed", "some.bed", "x.vcf"):
        lines = (
            (home / file)
            .read_text("utf-8", "surrogateescape")
            .splitlines(keepends=True)
        )
        named = [
            line.replace("long\t", "NC_1\t", 1)
            for line in lines
            if line.startswith(("#", "long"))
        ]
        (tmp_path / file).write_text("".join(named), "utf-8", "surrogateescape")
    command, model, _, *reference = case.words(home)
    ways: list[list[object]] = [[], ["--contig", "{}"]]
    ways += [["--regions", "{}/some.bed"]] if case.command == "score-variants" else []
    for way in ways:
        asked = [
            str(word).format("long" if way[0] == "--contig" else home) for word in way
        ]
        own = [
            row
            for row in rows(run(*case.words(home), *asked, "--format", "tsv"))
            if row[0] == "long"
        ]
        other = [
            str(word).format("NC_1" if way[0] == "--contig" else tmp_path)
            for word in way
        ]
        words = [
            command,
            model,
            tmp_path / case.source,
            *reference,
            *other,
            "--aliases",
            aliases,
        ]
        result = run(*words, "--format", "tsv")
        assert [row[1:] for row in rows(result)] == [row[1:] for row in own] != []
        assert f"--aliases {aliases}" in result.out
    words = [command, model, tmp_path / case.source, *reference]
    refused(run(*words), 1, "NC_1", "--aliases")
    aliases.write_text("NC_1 long\n")
    refused(run(*words, "--aliases", aliases), 1, aliases)


ALWAYS = """
    --batch-size 0 | --threads 0 | --max-n 1.5 | --max-n nan | --device tpu | --precision double |
    --precision float16 --device cpu | --device cuda |
    --format wig | -o x.csv | -o no/x.tsv | -o . | -o /proc/x.tsv
"""
WRONG = {
    "scan": """
        --stride 0 | --stride -5 | --strand x | --format bigwig | --format parquet | -o x.bw.gz | -o x.v2 |
        -o x.wig.gz
    """,
    "regions": """
        --tracks onee | --summary median | --center-fraction 1.5 | --format bigwig --tracks one |
        --format parquet | -o x.bw | --tracks x
    """,
    "effects": "--format bed | --offsets 0 | --offsets 42 | --tracks CTFC",
    "likelihoods": "--tracks one | --calibrated | --offsets 0 | --offsets 42",
}
OPTIONS = [
    (name, option.strip())
    for name in CASES
    for option in "|".join((ALWAYS, WRONG[name])).split("|")
]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_options_that_make_no_sense(
    run: Run,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    option: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(run(*CASES[name].words(home), *option.split()), 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", CASES)
def test_files_that_can_not_be_used(
    run: Run, home: Path, tmp_path: Path, name: str
) -> None:
    case, out, folder = CASES[name], tmp_path / "out", tmp_path / "folder"
    out.write_text("former")
    folder.mkdir()
    command, model, source, *reference = case.words(home)
    other = {"predict-tracks": "promoter", "score-variants": "sequences"}.get(
        case.command, "pretraining"
    )
    for wrong in ("none", "genome.fa", "", other):
        refused(
            run(command, home / wrong, source, *reference, "-o", out), 1, home / wrong
        )
    missing = [
        [command, model, tmp_path / "none", *reference],
        [command, model, folder, *reference],
    ]
    missing += (
        [[command, model, source, "--reference", tmp_path / "none"]]
        if reference
        else []
    )
    for words in missing:
        refused(run(*words, "-o", out), 1, tmp_path)
    for path in case.inputs(home):
        refused(run(*case.words(home), "-o", path), 2, path)
    assert out.read_text() == "former" and {*tmp_path.iterdir()} == {out, folder}
    assert run(*case.words(home), "-o", tmp_path / "x.csv", "--format", "tsv").code == 0
    assert (tmp_path / "x.csv").read_text().startswith("## bigbird-dna")


ON_CPU = ("--device", "cpu", "--format", "tsv")


def test_precision_is_part_of_a_job_and_stated(
    run: Run, home: Path, tmp_path: Path
) -> None:
    for case in CASES.values():
        words = [*case.words(home), "--contig", "last", *ON_CPU]
        plain, same, narrow = (
            run(*words, *more).out
            for more in ((), ("--precision", "float32"), ("--precision", "bfloat16"))
        )
        assert plain == same and "--precision" not in plain
        commands = [
            line for line in narrow.splitlines() if line.startswith("## command")
        ]
        assert len(commands) == 1 and "--precision bfloat16" in commands[0]
        assert narrow.replace(" --precision bfloat16", "") != plain


def test_where_a_gpu_has_bfloat16_it_is_the_default_unless_rounding_would_matter(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a CPU in its place. Where float32 is not the default, an output states it, to be repeatable."""
    monkeypatch.setattr(inference, "has_bfloat16", lambda device: True)
    for case in CASES.values():
        words = [*case.words(home), "--contig", "last", *ON_CPU]
        plain, narrow, wide = (
            run(*words, *more).out
            for more in ((), ("--precision", "bfloat16"), ("--precision", "float32"))
        )
        assert ("--precision float32" in wide) == (
            case.command in ("score-promoters", "predict-tracks")
        )
        assert plain == (narrow if "--precision float32" in wide else wide)


def test_standard_input_and_output(run: Run, home: Path, tmp_path: Path) -> None:
    scan = (
        "score-promoters",
        home / "promoter",
        "-",
        "--stride",
        STRIDE,
        "--contig",
        "long",
    )
    fasta = (home / "genome.fa").read_bytes()
    whole = run(*scan, stdin=fasta).out
    assert whole.count("\n") > 30
    assert (
        run(*scan[:2], home / "genome.fa", *scan[3:]).out.splitlines()[3:]
        == (whole.splitlines()[3:])
    )


def test_parts_by_contigs_are_concatenated_to_the_whole(run: Run, home: Path) -> None:
    words = CASES["scan"].words(home)
    parts = [row for contig in RECORDS for row in rows(run(*words, "--contig", contig))]
    assert parts == rows(run(*words))


def test_a_bigwig_without_any_score_is_refused(
    run: Run, home: Path, tmp_path: Path
) -> None:
    fasta = tmp_path / "n.fa"
    fasta.write_text(">n\n" + "N" * 200 + "\n")
    words = ("score-promoters", home / "promoter", fasta, "--format", "bigwig")
    refused(run(*words, "-o", tmp_path / "x.bw"), 1)
    assert {(row[4], row[6]) for row in rows(run(*words[:3]))} == {
        ("NA", "n_fraction=1")
    }


# Real data

# bp, so that a scan of 12 Mb takes a minute of a core; at 100 it is 25 of them.
REAL_STRIDE = int(os.environ.get("BIGBIRD_DNA_STRIDE", "4000"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("name", "stride", "least"),
    [
        ("x.tsv.gz", 100, 500_000),
        ("x.bw", 100, 500_000),
        ("x.tsv", REAL_STRIDE, 100_000),
    ],
)
def test_the_scan_of_yeast(
    shared_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    stride: int,
    least: int,
) -> None:
    """Every window with a stand-in for the network, and some with it."""
    if stride == 100:
        monkeypatch.setattr(
            LoadedPromoterModel,
            "window_probabilities",
            lambda _, texts, **__: hashed(texts),
        )
    fasta = next((shared_data / "yeast").glob("Saccharomyces*.fa.gz"))

    def scan(**options: Any) -> None:
        options |= {
            "format": "bigwig" if name == "x.bw" else "tsv",
            "stride": stride,
            "threads": 1,
        }
        bigbird_dna.score_promoters("yeast-promoters-window", fasta, **options)

    made = tmp_path / "made"
    made.mkdir()
    scan(output=made / name)
    whole = written(made)
    assert len(whole[name]) > least
    scan(output=made / name, batch_size=7)
    assert written(made) == whole
    command = b"## command bigbird-dna score-promoters yeast-promoters-window /"
    assert name != "x.tsv" or command in whole[name][:300]
