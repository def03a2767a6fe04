"""Pieces of a job merge to the bytes of the whole, in any number and order; those of others are refused."""

import itertools
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigbird_dna
from bigbird_dna.config import EncoderConfig
from bigbird_dna.disk.shards import Shard
from bigbird_dna.errors import UsageError
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.genome.region_filter import find_places
from bigbird_dna.genome.sequence import centred_tiles, count_tiles
from bigbird_dna.model.directory import save
from bigbird_dna.model.settings import ChromatinSettings, NamedTrack, PromoterSettings
from bigbird_dna.scoring.scan import count_windows, scan_promoters
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.cli.command import Run, refused
from tests.golden.messages import fails
from tests.toys import random_dna, random_model

WINDOW, STRIDE = 60, 25
PROMOTER = PromoterSettings(upstream=40, downstream=20, pooling="mean", jitter=4, views=2)
CHROMATIN = ChromatinSettings(
    window=120,
    bin=20,
    pooling="bin",
    bin_layers=1,
    members=1,
    tracks=tuple(NamedTrack(track=name, group="TF") for name in ("one", "two", "three")),
)
RECORDS = {
    "long": random_dna(900, 2),
    "short": random_dna(45, 3),
    "gap": random_dna(130, 4) + "N" * 70 + random_dna(151, 5),
    "tiny": "ACGTA",
    "last": random_dna(260, 6),
}
Job = Callable[..., Any]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models `promoter`, `other` and `chromatin`; `genome.fa.gz`, `regions.bed`, `some.bed`, `x.vcf`."""
    home = tmp_path_factory.mktemp("pieces")
    tokenizer = DnaTokenizer.train([random_dna(5000, 1)], home / "tokenizer.model", 32)
    config = EncoderConfig(
        vocabulary=tokenizer.vocabulary, layers=1, hidden=16, heads=2, max_length=96, block_size=8
    )
    for seed, (name, settings) in enumerate(
        {"promoter": PROMOTER, "chromatin": CHROMATIN, "other": PROMOTER}.items()
    ):
        save(home / name, random_model(tokenizer, config, settings, seed=seed, scale=3), {}, {}, {})
    (home / "genome.fa").write_text("".join(f">{name}\n{text}\n" for name, text in RECORDS.items()))
    prepare_reference(home / "genome.fa", home / "genome.fa.gz")
    regions = [("long", start, start + 10 * (start % 7 + 1)) for start in range(15, 800, 71)]
    regions += [("gap", 140, 180), ("last", 0, 260), ("nowhere", 5, 90), ("short", 20, 900), ("gap", 10, 30)]
    (home / "regions.bed").write_text("".join(f"{c}\t{s}\t{e}\tr{s}\n" for c, s, e in regions))
    (home / "some.bed").write_text("long\t100\t130\nlong\t400\t640\ngap\t0\t20\nlast\t200\t201\n")
    header = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
    (home / "x.vcf").write_text(header + "".join(_variants()), "utf-8", "surrogateescape")
    return home


def _variants() -> Iterator[str]:
    """Variants of every kind, with a byte that isn't UTF-8."""
    other = {"A": "C,<DEL>", "C": "G", "G": "T,GA", "T": "A", "N": "A"}
    for contig, step in (("long", 37), ("gap", 45), ("last", 90)):
        for place in range(3, len(RECORDS[contig]), step):
            ref = RECORDS[contig][place]
            yield f"{contig}\t{place + 1}\t.\t{ref}\t{other[ref]}\t.\tPASS\tKEY=\udc80{place}\n"
    yield "elsewhere\t5\t.\tA\tC\t.\t.\t.\n"


def merged(job: Job, made: Path, name: str, of: int, **options: Any) -> dict[str, bytes]:
    """The files that the pieces of a job become, each made with other batches, merged in another order."""
    pieces = [made / f"{number}.piece" for number in range(1, of + 1)]
    for number, (path, batch) in enumerate(zip(pieces, itertools.cycle((3, 1, 7))), start=1):
        job(output=path, piece=f"{number}/{of}", batch_size=batch, **options)
    counts = bigbird_dna.merge_shards([*pieces[1::2], *pieces[::2]], made / name)
    assert counts.shards == of
    for path in pieces:
        path.unlink()
    return written(made)


def written(directory: Path) -> dict[str, bytes]:
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    shutil.rmtree(directory)
    directory.mkdir()
    return files


def same(job: Job, made: Path, name: str, format: str, counts: tuple[int, ...], **options: Any) -> None:
    made.mkdir()
    job(output=made / name, format=format, **options)
    whole = written(made)
    assert len(whole[name]) > 100
    for of in counts:
        assert merged(job, made, name, of, format=format, **options) == whole, (format, of)


@pytest.fixture(scope="module")
def load(home: Path) -> Callable[[str], Any]:
    """The models of `home`, each loaded once."""
    return cache(lambda name: bigbird_dna.load(home / name))


@given(st.integers(1, 40), st.integers(0, 300))
def test_pieces_share_all_rows_evenly(of: int, total: int) -> None:
    ranges = [Shard(number, of).rows(total) for number in range(1, of + 1)]
    assert [row for rows in ranges for row in rows] == list(range(total))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


@given(st.integers(1, 600), st.integers(1, 90), st.integers(1, 120))
def test_windows_are_counted_without_listing_them(length: int, size: int, stride: int) -> None:
    assert count_tiles(length, size, stride) == len(list(centred_tiles(length, size, stride)))


WRONG = ("", "3", "0/4", "5/4", "1/0", "-1/4", "1/4/2", "a/b", "1.0/2", "1/1000000", "²/3")


@pytest.mark.parametrize("text", WRONG)
def test_a_piece_is_one_of_some(text: str) -> None:
    with fails(UsageError):
        Shard.parse(text)
    assert Shard.parse("3/8") == (3, 8)


@pytest.mark.parametrize("regions", [None, "some.bed"])
def test_the_windows_of_a_range_are_those_of_a_whole_scan(home: Path, regions: str | None) -> None:
    lengths = {name: len(text) for name, text in RECORDS.items()}
    places = find_places((), home / regions, lengths, "x", None) if regions else None
    count = count_windows(lengths, window=WINDOW, stride=STRIDE, places=places)

    def scan(**options: Any) -> list[Any]:
        toy = lambda texts: np.array([hash(text) % 1000 / 1000 for text in texts], np.float32)  # noqa: E731
        given = {"window": WINDOW, "stride": STRIDE, "strands": ("+",), "places": places, "predict": toy}
        return list(scan_promoters(home / "genome.fa", lengths, chunk_bases=100, **given, **options))

    whole = scan()
    assert len(whole) == count > 8
    for start, stop in itertools.combinations(range(0, count + 1, 3), 2):
        assert scan(numbers=range(start, stop)) == whole[start:stop]
    assert scan(numbers=range(4, 4)) == []


SCANS = {"tsv": "x.tsv.gz", "bed": "x.bed", "bedgraph": "x.bg.gz", "bigwig": "x.bw", "parquet": "x.parquet"}


@pytest.mark.parametrize("format", SCANS)
def test_a_scan(load: Callable[[str], Any], home: Path, tmp_path: Path, format: str) -> None:
    def scan(**options: Any) -> None:
        bigbird_dna.score_promoters(
            load("promoter"), home / "genome.fa.gz", stride=STRIDE, threads=1, **options
        )

    same(scan, tmp_path / "all", SCANS[format], format, (1, 3, 70) if format == "tsv" else (4,))
    chosen = {"contigs": ["long", "last", "gap"], "regions": home / "some.bed", "strand": "-"}
    same(scan, tmp_path / "some", SCANS[format], format, (3,), **chosen)


@pytest.mark.parametrize("format", ["tsv", "bed", "bigwig", "parquet"])
def test_predicted_regions(load: Callable[[str], Any], home: Path, tmp_path: Path, format: str) -> None:
    def predict(**options: Any) -> None:
        words = load("chromatin"), home / "regions.bed", home / "genome.fa.gz"
        bigbird_dna.predict_tracks(*words, threads=1, **options)

    tracks = {"tracks": "two"} if format == "bigwig" else {}
    name = f"x.{format}"
    same(
        predict,
        tmp_path / "all",
        name,
        format,
        (1, 45) if format == "tsv" else (4,),
        summary="mean",
        **tracks,
    )
    same(predict, tmp_path / "shared", name, format, (3,), middle=0.5, contigs=["long", "last"], **tracks)


@pytest.mark.parametrize(("format", "name"), [("vcf", "x.vcf.gz"), ("vcf", "x.vcf"), ("tsv", "x.tsv.gz")])
def test_effects_of_variants(
    load: Callable[[str], Any], home: Path, tmp_path: Path, format: str, name: str
) -> None:
    def score(model: str, **options: Any) -> None:
        words = load(model), home / "x.vcf", home / "genome.fa.gz"
        bigbird_dna.score_variants(*words, threads=1, **options)

    counts = (1, 50) if name == "x.vcf" else (3,)
    same(score, tmp_path / "all", name, format, counts, model="chromatin", offsets=1, tracks="*")
    chosen = {"contigs": ["long"], "regions": home / "some.bed"}
    same(score, tmp_path / "some", name, format, (2,), model="chromatin", offsets=2, **chosen)
    same(score, tmp_path / "promoters", name, format, (3,), model="promoter", stride=60, **chosen)


def test_precision_is_part_of_a_job_and_said(run: Run, home: Path, tmp_path: Path) -> None:
    scan = ("score-promoters", home / "promoter", home / "genome.fa.gz", "--device", "cpu")
    reference = ("--reference", home / "genome.fa.gz", "--device", "cpu")
    predict = ("predict-tracks", home / "chromatin", home / "regions.bed", *reference)
    score = (
        "score-variants",
        home / "chromatin",
        home / "x.vcf",
        "--format",
        "tsv",
        "--offsets",
        1,
        *reference,
    )
    for words in (scan, predict, score):
        plain, same, narrow = (
            run(*words, *more).out for more in ((), ("--precision", "float32"), ("--precision", "bfloat16"))
        )
        assert plain == same and "--precision" not in plain
        commands = [line for line in narrow.splitlines() if line.startswith("## command")]
        assert len(commands) == 1 and "--precision bfloat16" in commands[0]
        assert narrow.replace(" --precision bfloat16", "") != plain
        refused(run(*words, "--precision", "float16"), 2, "precision float16: for GPUs; on a CPU choose")
        refused(run(*words, "--precision", "double"), 2, "precision 'double': choose one of float32")
    pieces = [tmp_path / "1", tmp_path / "2"]
    assert run(*scan, "--shard", "1/2", "-o", pieces[0]).code == 0
    assert run(*scan, "--shard", "2/2", "-o", pieces[1], "--precision", "bfloat16").code == 0
    refused(run("merge-shards", *pieces, "-o", tmp_path / "x.tsv"), 1, "2: is not of the same job", "command")


def test_an_index_comes_with_the_merged_file_and_an_old_one_goes(home: Path, tmp_path: Path) -> None:
    words = home / "chromatin", home / "x.vcf", home / "genome.fa.gz"
    for number in (1, 2):
        bigbird_dna.score_variants(*words, tmp_path / f"{number}", piece=f"{number}/2", offsets=1)
    pieces = [tmp_path / "1", tmp_path / "2"]
    (tmp_path / "x.vcf.gz.csi").write_text("of a former file")
    bigbird_dna.merge_shards(pieces, tmp_path / "x.vcf.gz")
    assert (tmp_path / "x.vcf.gz.tbi").stat().st_size > 20 and not (tmp_path / "x.vcf.gz.csi").exists()


def test_standard_input_and_output(run: Run, home: Path, tmp_path: Path) -> None:
    scan = ("score-promoters", home / "promoter", "-", "--stride", STRIDE, "--contig", "long")
    fasta = (home / "genome.fa").read_bytes()
    whole = run(*scan, stdin=fasta).out
    assert whole.count("\n") > 30
    for number in (1, 2):
        assert run(*scan, "--shard", f"{number}/2", "-o", tmp_path / f"{number}", stdin=fasta).code == 0
    result = run("merge-shards", tmp_path / "2", tmp_path / "1")
    assert result.out == whole and "2 pieces, " in result.err


# What is refused.


@pytest.fixture
def pieces(run: Run, home: Path, tmp_path: Path) -> list[Path]:
    """Three pieces of a scan."""
    made = [tmp_path / f"{number}.piece" for number in (1, 2, 3)]
    for number, path in enumerate(made, start=1):
        assert scan_piece(run, home, path, f"{number}/3").code == 0
    return made


def scan_piece(run: Run, home: Path, output: Path, piece: str, *more: object, model: str = "promoter") -> Any:
    return run("score-promoters", home / model, home / "genome.fa", "--shard", piece, "-o", output, *more)


def test_sets_that_are_not_all_of_one_job_are_refused(
    run: Run, home: Path, pieces: list[Path], tmp_path: Path
) -> None:
    first, second, third = pieces
    out = tmp_path / "out.tsv"

    def wrong(*paths: Path, code: int = 1) -> Callable[..., str]:
        result = run("merge-shards", *paths, "-o", out)
        assert not out.exists()
        return lambda *parts: refused(result, code, *parts)

    wrong(first, third)("1.piece: is piece 1/3, and of the others piece 2 is missing")
    wrong(third)("3.piece: is piece 3/3, and of the others 2 pieces (1, 2) are missing")
    shutil.copy(second, tmp_path / "copy")
    wrong(first, second, third, tmp_path / "copy")("copy: is piece 2/3, as ", "2.piece is")
    other = tmp_path / "other"
    scan_piece(run, home, other, "2/4")
    wrong(first, other, third)("other: is not of the same job as ", "it is one of 4 pieces, not of 3")
    scan_piece(run, home, other, "2/3", "--stride", 99)
    wrong(first, other, third)(
        "its command is bigbird-dna score-promoters", "--stride 99", "not", "--stride 10"
    )
    scan_piece(run, home, other, "2/3", model="other")
    wrong(first, other, third)("its command is", f"{home}/other")
    scan_piece(run, home, other, "2/3", "--format", "bigwig")
    wrong(first, other, third)("its command is", "--format bigwig")
    wrong(first, home / "genome.fa")("genome.fa: damaged, or not a piece of a job")
    wrong(first, tmp_path / "none")("none: no such file")
    # A piece of other work, and a result where a piece should be.
    words = (home / "x.vcf", "--reference", home / "genome.fa.gz", "--offsets", 1)
    assert run("score-variants", home / "chromatin", *words, "--shard", "2/3", "-o", other).code == 0
    wrong(first, other, third)("it has effects of variants, not scored windows")


def test_the_same_names_with_another_content_are_another_job(run: Run, home: Path, tmp_path: Path) -> None:
    fasta, model = tmp_path / "genome.fa", tmp_path / "model"
    shutil.copy(home / "genome.fa", fasta)
    shutil.copytree(home / "promoter", model)
    words = ("score-promoters", model, fasta, "--shard")
    assert run(*words, "1/2", "-o", tmp_path / "1").code == 0
    text = fasta.read_text()
    fasta.write_text(text.replace("ACGTA\n", "ACGTC\n"))  # as long as before
    assert run(*words, "2/2", "-o", tmp_path / "2").code == 0
    result = run("merge-shards", tmp_path / "1", tmp_path / "2")
    refused(result, 1, "2: is not of the same job as", f"it differs in content ({fasta})")
    fasta.write_text(text)
    shutil.rmtree(model)
    shutil.copytree(home / "other", model)
    assert run(*words, "2/2", "-o", tmp_path / "2").code == 0
    result = run("merge-shards", tmp_path / "1", tmp_path / "2")
    refused(result, 1, "2: is not of the same job as", "its model is ")


def test_damaged_pieces_are_refused(run: Run, pieces: list[Path], tmp_path: Path) -> None:
    whole = pieces[1].read_bytes()
    faults = {len(whole) // 2: whole[: len(whole) // 2], 60: whole[:60] + b"\0\1\2" + whole[63:]}
    with zipfile.ZipFile(pieces[1]) as archive:
        rows, description = archive.read("rows.txt"), json.loads(archive.read("piece.json"))

    def packed(rows: bytes, **changed: Any) -> bytes:
        with zipfile.ZipFile(tmp_path / "new", "w") as archive:
            archive.writestr("rows.txt", rows)
            archive.writestr("piece.json", json.dumps({**description, **changed}))
        return (tmp_path / "new").read_bytes()

    made = [packed(rows[: rows.rindex(b"\n", 0, -1) + 1]), packed(rows.replace(b"\t+\t", b"\t+", 1))]
    made += [packed(rows, number="2"), packed(rows, job=[]), packed(rows, job={}), packed(rows, number=7)]
    for data in [*faults.values(), *made]:
        pieces[1].write_bytes(data)
        result = run("merge-shards", *pieces, "-o", tmp_path / "out.tsv")
        refused(result, 1, "2.piece: ")
        assert not (tmp_path / "out.tsv").exists()
    pieces[1].write_bytes(packed(rows, **{"bigbird-dna": "99.0"}))
    refused(run("merge-shards", *pieces), 1, "bigbird-dna 99.0 wrote it, not ")
    refused(run("merge-shards", pieces[1]), 1, "merge pieces with the version that wrote them")


def test_options_that_make_no_sense_are_refused(
    run: Run, home: Path, pieces: list[Path], tmp_path: Path
) -> None:
    refused(scan_piece(run, home, tmp_path / "x", "4/3"), 2, "piece '4/3': say which one of how many")
    words = ("score-promoters", home / "promoter", home / "genome.fa", "--shard", "1/3")
    refused(run(*words), 2, "piece 1/3: ", "name a file for it with -o")
    refused(run(*words, "-o", tmp_path), 2, "is a directory")
    refused(
        run("merge-shards", *pieces, "-o", tmp_path / "x.bw"), 2, "its ending says bigwig", "--format tsv"
    )
    refused(run("merge-shards", *pieces, "-o", pieces[0]), 2, "1.piece: is the input")
    refused(run("merge-shards", *pieces, "-o", tmp_path / "no/x.tsv"), 2, "there is no directory")
    assert {path.name for path in tmp_path.iterdir()} == {"1.piece", "2.piece", "3.piece"}


def test_a_bigwig_without_any_score_is_refused_when_it_is_merged(
    run: Run, home: Path, tmp_path: Path
) -> None:
    fasta = tmp_path / "n.fa"
    fasta.write_text(">n\n" + "N" * 200 + "\n")
    words = ("score-promoters", home / "promoter", fasta, "--format", "bigwig")
    said = refused(run(*words, "-o", tmp_path / "x.bw"), 1, "no window has a score")
    assert run(*words, "--shard", "1/1", "-o", tmp_path / "1").code == 0
    assert refused(run("merge-shards", tmp_path / "1", "-o", tmp_path / "x.bw"), 1) == said
