"""`score-promoters` through the real command, with a tiny model of random weights."""

import gzip
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from bigbird_dna.config import EncoderConfig
from bigbird_dna.disk.atomic import checksum
from bigbird_dna.genome.sequence import reverse_complement
from bigbird_dna.model.directory import build_network, load, make_model, save
from bigbird_dna.model.settings import PretrainingSettings, PromoterSettings
from bigbird_dna.tokens.dna import DnaTokenizer
from tests.cli.command import Run, refused
from tests.toys import BROKEN_FASTA

WINDOW = 60  # 40 + 20
COLUMNS = "#contig\tstart\tend\tname\tscore\tstrand\tnote"


@pytest.fixture
def run(run: Run) -> Run:
    """Run `bigbird-dna score-promoters`."""
    return partial(run, "score-promoters")


def random_dna(length: int, seed: int) -> str:
    return "".join(np.random.default_rng(seed).choice(list("ACGT"), length))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of model directories: promoter, pretraining."""
    directory = tmp_path_factory.mktemp("models")
    tokenizer = DnaTokenizer.train([random_dna(5000, 1)], directory / "tokenizer", 32)
    config = EncoderConfig(
        vocabulary=tokenizer.vocabulary, layers=1, hidden=16, heads=2, max_length=64, block_size=8
    )
    promoter = PromoterSettings(upstream=40, downstream=20, pooling="mean", jitter=4, views=1)
    for settings in (promoter, PretrainingSettings()):
        torch.manual_seed(1)
        network = build_network(config, settings)
        if settings is promoter:
            with torch.no_grad():  # fresh weights answer 0.5 to almost everything
                network.output.weight *= 8
        model = make_model(network, tokenizer, config, settings)
        save(directory / settings.task, model, {}, {}, {})
    return directory


@pytest.fixture(scope="module")
def model(models: Path) -> Path:
    return models / "promoter"


def fasta_text(records: dict[str, str], width: int = 50) -> str:
    return "".join(
        f">{name}\n"
        + "".join(sequence[start : start + width] + "\n" for start in range(0, len(sequence), width))
        for name, sequence in records.items()
    )


RECORDS = {
    "chr1": random_dna(331, 2),
    "short": random_dna(45, 3),
    "gap": random_dna(60, 4) + "N" * 70 + random_dna(61, 5),
}


@pytest.fixture
def fasta(tmp_path: Path) -> Path:
    path = tmp_path / "genome.fa"
    path.write_text(fasta_text(RECORDS))
    return path


def table(text: str) -> list[dict[str, str]]:
    lines = [line for line in text.splitlines() if not line.startswith("## ")]
    names = lines[0].lstrip("#").split("\t")
    return [dict(zip(names, line.split("\t"), strict=True)) for line in lines[1:]]


def test_table_of_a_small_genome(run: Run, model: Path, fasta: Path) -> None:
    result = run(model, fasta, "--stride", 30, "--device", "cpu")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert lines[0].startswith("## bigbird-dna 0.")
    assert lines[1] == f"## model {checksum(model / 'model.safetensors')}"
    assert lines[2].startswith(f"## command bigbird-dna score-promoters {model} {fasta} ")
    assert "--stride 30" in lines[2]
    assert lines[3] == COLUMNS
    rows = table(result.out)
    assert [row["strand"] for row in rows] == ["+", "-"] * (len(rows) // 2)
    assert list(dict.fromkeys(row["contig"] for row in rows)) == list(RECORDS)
    scored = [float(row["score"]) for row in rows if row["score"] != "NA"]
    assert all(0 <= score <= 1 for score in scored)
    assert np.ptp(scored) > 0.01, "a model that says the same of everything can't fail these tests"
    for row in rows:
        if row["note"] == ".":
            assert int(row["end"]) - int(row["start"]) == WINDOW
    starts = [int(row["start"]) for row in rows if row["contig"] == "chr1" and row["strand"] == "+"]
    assert (starts[0], starts[-1]) == (0, 331 - WINDOW)
    short = [row for row in rows if row["contig"] == "short"]
    assert [(r["start"], r["end"], r["note"]) for r in short] == [("0", "45", "short")] * 2
    assert "NA" not in {row["score"] for row in short}
    unscored = [row for row in rows if row["score"] == "NA"]
    assert unscored and all(row["note"].startswith("n_fraction=") for row in unscored)
    assert "scores along 3 records" in result.err and "shorter than the window" in result.err


def test_scores_are_the_models(run: Run, model: Path, fasta: Path) -> None:
    loaded = load(model)
    rows = [row for row in table(run(model, fasta).out) if row["note"] == "."]
    windows = [RECORDS[row["contig"]][int(row["start"]) : int(row["end"])] for row in rows]
    seen = [
        window if row["strand"] == "+" else reverse_complement(window)
        for row, window in zip(rows, windows, strict=True)
    ]
    expected = np.concatenate([loaded.predict([sequence]) for sequence in seen])
    np.testing.assert_allclose([float(row["score"]) for row in rows], expected, atol=1e-5)


def test_reverse_complement_is_mirrored(run: Run, model: Path, fasta: Path, tmp_path: Path) -> None:
    mirrored = tmp_path / "mirrored.fa"
    mirrored.write_text(fasta_text({name: reverse_complement(s) for name, s in RECORDS.items()}))
    scores = {}
    for path in (fasta, mirrored):
        for row in table(run(model, path, "--stride", 7).out):
            start, end, strand = int(row["start"]), int(row["end"]), row["strand"]
            if path == mirrored:
                length = len(RECORDS[row["contig"]])
                start, end, strand = length - end, length - start, "-" if strand == "+" else "+"
            score = float(row["score"].replace("NA", "-1"))
            scores.setdefault((row["contig"], start, end, strand, row["note"]), []).append(score)
    assert {len(pair) for pair in scores.values()} == {2}, "the same windows"
    first, second = np.array(list(scores.values())).T
    np.testing.assert_allclose(first, second, atol=1e-5)


def test_batches_order_and_threads_change_nothing(run: Run, model: Path, fasta: Path, tmp_path: Path) -> None:
    turned = tmp_path / "turned.fa"
    turned.write_text(fasta_text(dict(reversed(RECORDS.items()))))
    whole = {row["name"]: row["score"] for row in table(run(model, fasta).out)}
    for words in ((fasta, "--batch-size", 1), (turned, "--batch-size", 7, "--threads", 1)):
        other = {row["name"]: row["score"] for row in table(run(model, *words).out)}
        assert other.keys() == whole.keys()
        for name, score in other.items():
            if "NA" in (score, whole[name]):
                assert score == whole[name]
            else:
                assert float(score) == pytest.approx(float(whole[name]), abs=1.1e-5)


def test_one_strand_alone_has_the_same_scores(run: Run, model: Path, fasta: Path) -> None:
    both = table(run(model, fasta).out)
    for strand in "+-":
        alone = table(run(model, fasta, "--strand", strand).out)
        assert [row["name"] for row in alone] == [r["name"] for r in both if r["strand"] == strand]


@pytest.mark.parametrize("kind", ["gzip", "bgzip", "crlf", "lower", "stdin", "iupac"])
def test_every_way_to_write_the_same_sequence(run: Run, model: Path, tmp_path: Path, kind: str) -> None:
    sequence = random_dna(200, 6)[:-10] + "NNNNNACGTA"
    text = fasta_text({"c": sequence})
    plain, other = tmp_path / "plain.fa", tmp_path / "other.fa"
    plain.write_text(text)
    stdin = b""
    if kind == "gzip":
        other.write_bytes(gzip.compress(text.encode()))
    elif kind == "bgzip":
        import pysam

        pysam.tabix_compress(str(plain), str(other))
    elif kind == "crlf":
        other.write_bytes(text.replace("\n", "\r\n").encode())
    elif kind == "lower":
        other.write_text(fasta_text({"c": sequence.lower()}))
    elif kind == "iupac":
        other.write_text(fasta_text({"c": sequence.replace("NNNNN", "RYSWk")}))
    else:
        other, stdin = Path("-"), text.encode()
    expected, read = run(model, plain), run(model, other, stdin=stdin)
    assert (expected.code, read.code) == (0, 0), read.err
    assert table(read.out) == table(expected.out)


def test_output_file_has_the_bytes_of_standard_output(
    run: Run, model: Path, fasta: Path, tmp_path: Path
) -> None:
    output = tmp_path / "scores.tsv"
    printed = run(model, fasta)
    assert run(model, fasta, "-o", "-").out == printed.out
    written = run(model, fasta, "-o", output)
    assert written.code == 0 and written.out == ""
    assert output.read_text() == printed.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["genome.fa", "scores.tsv"]


def test_every_format(run: Run, model: Path, fasta: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq
    import pybigtools

    rows = table(run(model, fasta).out)
    assert run(model, fasta, "-o", tmp_path / "x.bed").code == 0
    bed = table((tmp_path / "x.bed").read_text())
    assert [r["name"] for r in bed] == [r["name"] for r in rows]
    assert all(0 <= int(row["score"]) <= 1000 for row in bed)
    assert [row["probability"] for row in bed] == [row["score"] for row in rows]
    assert run(model, fasta, "--format", "parquet", "-o", tmp_path / "x").code == 0
    stored = pq.read_table(tmp_path / "x")
    assert stored.column("name").to_pylist() == [row["name"] for row in rows]
    assert set(stored.schema.metadata) == {b"bigbird-dna", b"model", b"command"}
    assert run(model, fasta, "-o", tmp_path / "x.bedgraph").code == 0
    assert run(model, fasta, "-o", tmp_path / "x.bw").code == 0
    lines = (tmp_path / "x.bedgraph").read_text().splitlines()
    pieces = [line.split("\t") for line in lines if not line.startswith("#")]
    with pybigtools.open(str(tmp_path / "x.bw")) as signal:
        records = [(name, *record) for name in RECORDS for record in signal.records(name)]
    expected = [(c, int(start), int(end), pytest.approx(float(v))) for c, start, end, v in pieces]
    assert records == expected
    assert {piece[0] for piece in pieces} == set(RECORDS)


def test_records_that_hardly_fill_a_window(run: Run, model: Path, tmp_path: Path) -> None:
    """Tables list them with their scores; in a signal, which has no notes, they would be its peaks."""
    records = {
        "chr1": random_dna(200, 2),
        "fits": random_dna(45, 3),
        "tiny": "ACGTA",
        "less": random_dna(44, 4),
    }
    records["thin"] = random_dna(40, 5) + "N" * 6  # long enough, but not with its N
    fasta = tmp_path / "genome.fa"
    fasta.write_text(fasta_text(records))
    said = "warning: 2 records are so short that more than 0.25 of their window lies beyond them"
    for format in ("tsv", "bed", "parquet"):
        result = run(model, fasta, "-o", tmp_path / "x", "--format", format)
        assert result.code == 0 and result.err.count(f"{said}: their scores say little") == 1
    rows = table(run(model, fasta).out)
    for name in ("fits", "tiny", "less", "thin"):
        assert [row["note"] for row in rows if row["contig"] == name] == ["short"] * 2
    assert "NA" not in {row["score"] for row in rows}
    for format in ("bedgraph", "bigwig"):
        result = run(model, fasta, "-o", tmp_path / f"x.{format}", "--format", format)
        assert result.code == 0 and result.err.count(f"{said}: {format} leaves them out") == 1
    live = run(model, fasta, "--format", "bedgraph")
    assert live.err.count(said) == 1
    lines = [line for line in live.out.splitlines() if not line.startswith("#")]
    assert {line.split("\t")[0] for line in lines} == {"chr1", "fits"}
    assert f"{live.out}" == (tmp_path / "x.bedgraph").read_text()
    every = run(model, fasta, "--format", "bedgraph", "--max-n", 1)
    assert "warning" not in every.err
    assert {line.split("\t")[0] for line in every.out.splitlines() if line[0] != "#"} == set(records)
    assert "warning" not in run(model, fasta, "--contig", "chr1", "--contig", "fits").err
    fasta.write_text(fasta_text({"tiny": "ACGTA"}))
    out = tmp_path / "none.bw"
    refused(run(model, fasta, "-o", out), 1, "no window has a score", after_log=True)


GOOD = ">c\n" + "ACGT" * 30 + "\n"
BAD_FASTA = {
    **BROKEN_FASTA,
    "blank file": (b"\n\n", "no FASTA record"),
    "truncated gzip": (gzip.compress(GOOD.encode() * 50)[:-12], "truncated"),
    "damaged gzip": (b"\x1f\x8b\x08\x00 not a gzip file at all", "damaged"),
    "late": ((GOOD + ">d\nACGT\nACXT\n").encode(), "line 5"),
}


@pytest.mark.parametrize("way", ["file", "stdout", "stdin"])
@pytest.mark.parametrize("kind", BAD_FASTA)
def test_bad_fasta(run: Run, model: Path, tmp_path: Path, kind: str, way: str) -> None:
    content, part = BAD_FASTA[kind]
    path = tmp_path / "bad.fa"
    path.write_bytes(content)
    if way == "stdin":
        refused(run(model, "-", stdin=content), 1, part, "standard input")
        return
    output = ("-o", tmp_path / "out.tsv") if way == "file" else ()
    refused(run(model, path, *output), 1, part, path)
    assert list(tmp_path.iterdir()) == [path]


def test_missing_fasta_and_directory(run: Run, model: Path, tmp_path: Path) -> None:
    refused(run(model, tmp_path / "none.fa"), 1, "none.fa: no such file")
    refused(run(model, tmp_path), 1, tmp_path, "directory")


def damage(directory: Path, name: str, content: bytes | None) -> None:
    path = directory / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", None),
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b'{"format": 99}'),
        ("model.safetensors", None),
        ("model.safetensors", b"junk"),
        ("model.safetensors", b""),
        ("tokenizer.model", None),
        ("tokenizer.model", b"junk"),
        ("tokenizer.model", b""),
    ],
)
def test_damaged_model(
    run: Run, model: Path, fasta: Path, tmp_path: Path, name: str, content: bytes | None
) -> None:
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    damage(copy, name, content)
    refused(run(copy, fasta, "-o", tmp_path / "out.tsv"), 1, copy, name)
    assert not (tmp_path / "out.tsv").exists()


def test_truncated_weights(run: Run, model: Path, fasta: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    weights = (model / "model.safetensors").read_bytes()
    damage(copy, "model.safetensors", weights[: len(weights) // 2])
    refused(run(copy, fasta), 1, "model.safetensors", "damaged")


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (np.nan, "model.safetensors: tensor 'encoder.embeddings.token.weight' holds what is not"),
        (np.finfo(np.float32).max, "model: its predictions are not finite"),  # its sums are not
    ],
)
@pytest.mark.parametrize("ending", ["bed", "tsv", "bedgraph", "bw", "parquet"])
def test_a_model_that_gives_no_numbers(
    run: Run, model: Path, fasta: Path, tmp_path: Path, ending: str, value: float, part: str
) -> None:
    broken = load(model)
    with torch.no_grad():
        for parameter in broken.network.parameters():
            parameter.fill_(value)
    save(tmp_path / "model", broken, {}, {}, {})
    out = tmp_path / f"out.{ending}"
    refused(run(tmp_path / "model", fasta, "-o", out), 1, part)
    assert {one.name for one in tmp_path.iterdir()} == {"model", fasta.name}


def test_no_model_directory(run: Run, models: Path, fasta: Path, tmp_path: Path) -> None:
    refused(run(tmp_path / "none", fasta), 1, "none: no such model directory")
    refused(run(fasta, fasta), 1, "no such model directory")
    refused(run(tmp_path, fasta), 1, "not a model directory")
    refused(run(models / "pretraining", fasta), 1, "promoter model", "pretraining model")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--stride", "0"), "stride 0: must be at least 1"),
        (("--stride", "-5"), "stride -5: must be at least 1"),
        (("--batch-size", "0"), "batch_size 0"),
        (("--threads", "0"), "threads 0"),
        (("--max-n", "1.5"), "max_n 1.5"),
        (("--max-n", "nan"), "max_n nan"),
        (("--format", "wig"), "format 'wig': choose one of tsv, bed, bedgraph, bigwig, parquet"),
        (("--strand", "x"), "strand 'x'"),
        (("--device", "tpu"), "tpu"),
        (("--format", "bigwig"), "name a file with -o"),
        (("--format", "parquet"), "name a file with -o"),
        (("-o", "x.bw.gz"), "leave out .gz"),
        (
            ("-o", "x.csv"),
            "x.csv: .csv is not the ending of a format: end the name in one of .tsv, .txt, .bed,",
        ),
        (("-o", "x.v2"), ".parquet, or choose the format with --format"),
        (("-o", "x.wig.gz"), ".wig is not the ending"),
    ],
)
def test_wrong_options(run: Run, model: Path, fasta: Path, words: tuple[str, ...], part: str) -> None:
    refused(run(model, fasta, *words), 2, part)


def test_no_gpu_is_said(run: Run, model: Path, fasta: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(run(model, fasta, "--device", "cuda"), 2, "cuda")


def test_outputs_that_cannot_be_written(run: Run, model: Path, fasta: Path, tmp_path: Path) -> None:
    refused(run(model, fasta, "-o", tmp_path / "no" / "x.tsv"), 2, "no directory", tmp_path / "no")
    refused(run(model, fasta, "-o", tmp_path), 2, "is a directory")
    refused(run(model, fasta, "-o", fasta / "x.tsv"), 2, "no directory")
    refused(run(model, fasta, "-o", fasta), 2, "is the input")
    # Nobody may create files in /proc, not even root, whom permissions don't hold up.
    refused(run(model, fasta, "-o", "/proc/x.tsv"), 2, "/proc/x.tsv: can't be written")
    assert fasta.read_text() == fasta_text(RECORDS)


@pytest.mark.parametrize("name", ["x.tsv", "x.bed", "x.bedgraph", "x.bw", "x.parquet"])
def test_a_failure_in_the_middle_leaves_the_old_output(
    run: Run, model: Path, fasta: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from bigbird_dna.scoring import scan as scoring

    output = tmp_path / name
    output.write_text("old")
    before = sorted(tmp_path.iterdir())
    original = scoring.stream_fasta

    def full_disk(path: Path, chunk_bases: int) -> object:
        yield from original(path, chunk_bases)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scoring, "stream_fasta", full_disk)
    refused(run(model, fasta, "-o", output), 1, f"{output}: can't be written: No space left")
    assert output.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == before


def test_bigwig_of_nothing(run: Run, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "n.fa"
    path.write_text(fasta_text({"c": "N" * 200}))
    refused(run(model, path, "-o", tmp_path / "x.bw"), 1, "no window has a score")
    assert list(tmp_path.iterdir()) == [path]
    listed = run(model, path)
    assert listed.code == 0
    assert {(row["score"], row["note"]) for row in table(listed.out)} == {("NA", "n_fraction=1")}


def test_devices_and_links_are_not_replaced(run: Run, model: Path, fasta: Path, tmp_path: Path) -> None:
    assert run(model, fasta, "-o", "/dev/null").code == 0
    assert Path("/dev/null").is_char_device()
    (tmp_path / "target.tsv").write_text("old")
    (tmp_path / "link.tsv").symlink_to("target.tsv")
    assert run(model, fasta, "-o", tmp_path / "link.tsv").code == 0
    assert (tmp_path / "link.tsv").is_symlink()
    assert len(table((tmp_path / "target.tsv").read_text())) > 10
