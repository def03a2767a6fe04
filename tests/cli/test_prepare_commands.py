"""The commands of `prepare` that bring a genome, its promoters and its tokens into form."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from bigbird_dna.genome.fasta import read_records
from bigbird_dna.genome.promoters import read_loci
from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.genome.sequence import Locus
from bigbird_dna.tokens.dna import DnaTokenizer
from bigbird_dna.tokens.store import TokenStore
from tests.cli.command import Run, refused, silent
from tests.golden.messages import message

CONTIGS = {"chrI": "ACGTN" * 50, "chrII": "GATTACA" * 30}


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    path = tmp_path / "reference.fa.gz"
    write_fasta(path, list(CONTIGS.items()))
    return path


def records(path: Path) -> list[tuple[str, str]]:
    return list(read_records(path))


@pytest.mark.parametrize(
    ("words", "contig", "start", "end"),
    [
        ("chrII", "chrII", 0, 210),
        ("chrI --megabases 0.00001", "chrI", 0, 10),
        ("chrI --megabases 5", "chrI", 0, 250),
        ("NC_001134.8 --assembly sacCer3", "chrII", 0, 210),
        ("two --aliases {aliases}", "chrII", 0, 210),
        ("t?o --assembly custom --aliases {aliases}", "chrII", 0, 210),
        ("chr* --megabases 1", "chrI", 0, 250),
        ("chr* --exclude=chrI", "chrII", 0, 210),
        ("chr* --exclude one --aliases {aliases}", "chrII", 0, 210),
        # Regions stand at their own coordinates, and nothing of what lies before them.
        ("chrI:11-20", "chrI", 10, 20),
        ("NC_001133.9:241- --assembly sacCer3", "chrI", 240, 250),
        ("chrI:11-30 --megabases 0.00001", "chrI", 10, 20),
        ("chrI:15-30 --megabases 0.00001", "chrI", 14, 25),  # of which the first is N
    ],
)
def test_extract(
    run: Run,
    reference: Path,
    tmp_path: Path,
    words: str,
    contig: str,
    start: int,
    end: int,
) -> None:
    """A contig by its name, another name, an alias or a pattern; its start, or a region."""
    output, aliases = tmp_path / "out.fa.gz", tmp_path / "aliases.tsv"
    aliases.write_text("chrI\tone\nchrII\ttwo\n")
    assert (
        run(
            "prepare reference",
            reference,
            "--only",
            *words.format(aliases=aliases).split(),
            "-o",
            output,
        ).code
        == 0
    )
    assert records(output) == [(contig, "N" * start + CONTIGS[contig][start:end])]


@pytest.mark.parametrize(
    ("before", "bases"), [(7, 20), (1_000_000, 20), (1_500_003, 50), (9, 0)]
)
def test_a_start_is_counted_from_the_first_base(
    run: Run, tmp_path: Path, before: int, bases: int
) -> None:
    """So that of a piece at its place there is something."""
    path, output = tmp_path / "x.fa.gz", tmp_path / "out.fa.gz"
    write_fasta(path, [("c", "N" * before + "ACGTN" * (bases // 5))])
    assert (
        run(
            "prepare reference",
            path,
            "--only",
            "c",
            "-o",
            output,
            "--megabases",
            "0.00002",
        ).code
        == 0
    )
    written = "".join(sequence for _, sequence in records(output))
    assert written == ("N" * before + "ACGTN" * 4 if bases else "N" * 9)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("chrI:200-251",), 2),
        (("chr9",), 2),
        (("chr*", "--exclude=chrI", "--exclude=*II"), 2),
        (("I",), 2),
        (("chrI", "--megabases", "0"), 2),
        (("chrI", "--megabases", "nan"), 2),
        (("chrI", "--megabases", "inf"), 2),
        (("chrI", "--assembly", "hg99"), 2),
    ],
)
def test_extract_faults(
    run: Run, reference: Path, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    output = tmp_path / "out.fa.gz"
    refused(
        run("prepare reference", reference, "--only", *arguments, "-o", output), code
    )
    assert not output.exists()


def test_several_regions(run: Run, reference: Path, tmp_path: Path) -> None:
    """In the order of the options, with N between regions."""
    output = tmp_path / "out.fa.gz"
    only = [
        f"--only={text}" for text in ("chrII", "chrI:21-30", "chrI:5-10", "chrI:8-12")
    ]
    assert run("prepare reference", reference, *only, "-o", output).code == 0
    parts = CONTIGS["chrI"][4:12] + "N" * 8 + CONTIGS["chrI"][20:30]
    assert records(output) == [("chrII", CONTIGS["chrII"]), ("chrI", "N" * 4 + parts)]
    refused(run("prepare reference", reference, "-o", output, "--exclude", "x"), 2)


def test_extract_onto_the_reference(run: Run, reference: Path) -> None:
    before = reference.read_bytes()
    refused(
        run("prepare reference", reference, "--only", "chrI", "-o", reference),
        2,
        reference,
    )
    assert reference.read_bytes() == before


def test_fetch_faults(run: Run, tmp_path: Path) -> None:
    refused(run("prepare fetch", "GRCh37.sizes", "-o", "/dev/null"), 2)
    refused(run("prepare fetch", "GRCh37.sizes", "-o", tmp_path), 2, tmp_path)
    (tmp_path / "file").touch()
    refused(run("prepare fetch", "GRCh37.sizes", "-o", tmp_path / "file/out"), 2)


# prepare tokenizer, prepare tokens and prepare token-stats as a user runs them


@pytest.fixture
def run(run: Run) -> Run:
    return silent(run)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with a reference of three contigs; only `test` has TTAGGG."""
    rng = np.random.default_rng(0)
    train = "".join(rng.choice(list("ACGT"), 60_000, p=[0.4, 0.1, 0.2, 0.3]))
    valid = "".join(rng.choice(list("ACGT"), 8_000)) + "N" * 2_000
    write_fasta(
        tmp_path / "results" / "genome" / "reference.fa.gz",
        [("one", train), ("two", valid), ("three", "TTAGGG" * 1000)],
    )
    path = tmp_path / "config.yaml"
    path.write_text(
        f"results: {tmp_path / 'results'}\n"
        "genome: {valid: [two], test: [three]}\n"
        "tokens: {vocabulary: 64, genome_passes: 3, max_start_offset: 200, sentence_bases: [50, 100], "
        "sentences_per_document: [5, 9]}\n"
    )
    return path


def test_from_reference_to_statistics(config: Path, run: Run) -> None:
    directory = config.parent / "results" / "tokens"
    code, _, log = run("prepare tokenizer", config)
    assert code == 0 and "sampling 0.06 of the 0.06 Mb of the training contigs" in log
    tokenizer = DnaTokenizer.load(directory / "tokenizer.model")
    assert tokenizer.vocabulary == 64
    assert "TTAGGG" not in tokenizer.pieces  # of the test contig alone

    assert run("prepare tokens", config).code == 0
    stores = {
        split: TokenStore(directory / split, tokenizer)
        for split in ("train", "valid", "test")
    }
    assert stores["train"].info["bases"] == pytest.approx(3 * 60_000, abs=3 * 200)
    assert stores["valid"].info["bases"] == pytest.approx(8_000, abs=200)
    assert stores["valid"].info["skipped_bases"] == pytest.approx(2_000, abs=100)
    assert stores["test"].info["bases"] == pytest.approx(6_000, abs=200)
    assert [stores[split].info["passes"] for split in stores] == [3, 1, 1]
    assert [stores[split].info["contigs"] for split in stores] == [
        ["one"],
        ["two"],
        ["three"],
    ]

    statistics = json.loads((directory / "statistics.json").read_text())
    assert [*statistics] == ["train", "valid", "test", "genome"]
    valid = stores["valid"]
    ids = np.asarray(valid.tokens)
    is_base = np.isin(ids, tokenizer.base_ids)
    bases = sum(len(tokenizer.pieces[token]) for token in ids[is_base])
    found = statistics["valid"]
    assert found["tokens"] == len(ids) and found["bases"] == bases
    assert found["bases_per_token"] == pytest.approx(bases / is_base.sum(), abs=1e-4)
    total = sum(statistics[split]["tokens"] for split in stores)
    assert statistics["genome"]["tokens"] == total
    assert statistics["genome"]["unknown_tokens"] == 0


def test_paths_threads_and_overrides(config: Path, run: Run) -> None:
    tmp = config.parent
    reference = tmp / "elsewhere.fa"
    reference.write_text(
        ">one\n" + "ACGTTGCAAC" * 100 + "\n>two\n" + "ACGT" * 100 + "\n"
    )
    options = ["--reference", reference, "--set", "genome.test=[]"]
    model, stores = tmp / "m.model", tmp / "stores"
    more = ["--set", "tokens.vocabulary=16"]
    assert run("prepare tokenizer", config, "-o", model, *options, *more).code == 0
    assert DnaTokenizer.load(model).vocabulary == 16
    options += ["--tokenizer", model, "--threads", "2"]
    assert run("prepare tokens", config, "-o", stores, *options).code == 0
    assert TokenStore(stores / "test").info["sentences"] == 0
    assert not (tmp / "results" / "tokens").exists()


def test_the_corpus_has_the_size_of_the_configuration(config: Path, run: Run) -> None:
    # 11 pieces are always there; a corpus of 30 bases has no room for a thousand others.
    options = [
        "--set",
        "tokens.corpus_megabases=0.00003",
        "--set",
        "tokens.vocabulary=1000",
    ]
    refused(
        run("prepare tokenizer", config, *options),
        2,
        "1000",
        "30 bases",
        after_log=True,
    )
    assert not (config.parent / "results" / "tokens").exists() or not list(
        (config.parent / "results" / "tokens").iterdir()
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["prepare tokenizer", "missing.yaml"], 2),
        (["prepare tokens", "{config}", "--set", "tokens.vocabulery=9"], 2),
        (["prepare tokens", "{config}", "--set", "tokens.genome_passes=many"], 2),
        (["prepare tokens", "{config}", "--threads", "0"], 2),
        (["prepare tokens", "{config}"], 1),
        (["prepare tokens", "{config}", "--tokenizer", "{config}"], 1),
        (["prepare tokenizer", "{config}", "--reference", "no.fa"], 1),
        (["prepare tokenizer", "{config}", "--set", "genome.test=[four]"], 2),
    ],
)
def test_mistakes_of_users(
    config: Path, run: Run, arguments: list[str], expected: int
) -> None:
    model = config.parent / "any.model"
    DnaTokenizer.train(["ACGT" * 9], model, 12)
    words = (word.format(config=config, model=model) for word in arguments)
    refused(run(*words), expected, after_log=True)
    assert not list((config.parent / "results").glob("tokens/*"))


# `prepare reference` and `prepare promoters` from the command line


@pytest.fixture
def genome(tmp_path):
    path = tmp_path / "reference.fa.gz"
    write_fasta(path, [("I", "ACGT" * 100), ("II", "GGCA" * 100)])
    return path


def test_prepare_reference_refuses_other_files_and_assemblies(run, tmp_path, genome):
    output = tmp_path / "out.fa.gz"
    refused(
        run("prepare reference", tmp_path / "absent.fa", "-o", output),
        1,
        tmp_path / "absent.fa",
    )
    refused(run("prepare reference", tmp_path, "-o", output), 2)
    command = ["prepare reference", genome, "-o", output, "--assembly"]
    for name, code in (("GRCh37", 1), ("hg19", 1), ("hg99", 2)):
        refused(run(*command, name), code)
        assert not output.exists()
    code, _, err = run(*command, "sacCer3")
    assert code == 0
    message(err, "sacCer3", "230,218")


def test_prepare_promoters_renames_and_counts(run, tmp_path, genome):
    source, output = tmp_path / "x.sga", tmp_path / "out" / "promoters.tsv"
    source.write_text(
        "NC_001134.8\tTSS\t8\t-\t1\tb\n"
        "NC_001133.9\tTSS\t5\t+\t1\ta\n"
        "chrI\tTSS\t5\t+\t1\ta2\n"
        "NC_001135.5\tTSS\t5\t+\t1\tc\n"
    )
    code, out, err = run(
        "prepare promoters",
        source,
        "--reference",
        genome,
        "--assembly",
        "sacCer3",
        "-o",
        output,
    )
    assert (code, out) == (0, "")
    assert read_loci(output) == [Locus("I", 4, "+", "a"), Locus("II", 7, "-", "b")]
    assert json.loads(output.with_suffix(".json").read_text()) == {
        "read": 4,
        "lifted": None,
        "unmapped": None,
        "off_reference": 1,
        "duplicates": 1,
        "promoters": 2,
        "dropped_contigs": {"NC_001135.5": 1},
        "beyond_contigs": {},
    }
    message(
        err,
        source,
        "1 of 4 promoters (25.0%)",
        "NC_001135.5 1\n",
        "4 read, 1 off reference",
    )


def test_prepare_promoters_with_an_alias_file(run, tmp_path, genome):
    source, output, aliases = (
        tmp_path / "x.gff3",
        tmp_path / "promoters.tsv",
        tmp_path / "aliases.tsv",
    )
    source.write_text(
        "one\tx\tmRNA\t5\t9\t.\t+\t.\tID=a\n"
        + "two\tx\tmRNA\t5\t9\t.\t-\t.\tID=b\n" * 2
    )
    command = [
        "prepare promoters",
        source,
        "--reference",
        genome,
        "--assembly",
        "custom",
        "-o",
        output,
    ]
    refused(run(*command), 1, after_log=True)
    aliases.write_text("I\tone\n")
    code, _, err = run(*command, "--aliases", aliases)
    assert code == 0
    message(err, source, "2 of 3 promoters (66.7%)", "two 2")
    assert json.loads(output.with_suffix(".json").read_text())["dropped_contigs"] == {
        "two": 2
    }
    aliases.write_text("I\tone\nII\ttwo\n")
    code, _, err = run(*command, "--aliases", aliases)
    assert code == 0 and "warning" not in err
    assert read_loci(output) == [Locus("I", 4, "+", "a"), Locus("II", 8, "-", "b")]
    aliases.write_text("I\tone\nI\ttwo\n")
    refused(run(*command, "--aliases", aliases), 1, aliases)
    refused(
        run("prepare reference", genome, "-o", output, "--aliases", tmp_path / "gone"),
        1,
    )


def test_prepare_promoters_lifts_along_a_chain(run, tmp_path):
    genome, chain = tmp_path / "22.fa.gz", tmp_path / "x.chain"
    source, output = tmp_path / "x.bed", tmp_path / "promoters.tsv"
    write_fasta(genome, [("22", "ACGT" * 100)])
    chain.write_text(
        "chain 1 chr22 50818468 + 100 200 chr22 51304566 + 150 250 1\n100\n\n"
    )
    source.write_text(
        "NC_000022.11\t120\t121\ta\t0\t+\nNC_000022.11\t20\t21\tb\t0\t+\n"
    )
    command = [
        "prepare promoters",
        source,
        "--reference",
        genome,
        "--assembly",
        "GRCh37",
    ]
    command += ["-o", output, "--chain", chain]
    code, _, err = run(*command, "--from-assembly", "hg38")
    assert code == 0
    assert "2 read, 1 lifted, 1 unmapped, 0 off reference" in err
    assert read_loci(output) == [Locus("22", 170, "+", "a")]
    refused(run(*command), 2)


def test_prepare_promoters_refuses_a_bed_of_other_contigs_and_a_plain_reference(
    run, tmp_path, genome
):
    source, output = tmp_path / "x.bed", tmp_path / "out" / "promoters.tsv"
    output.parent.mkdir()
    source.write_text("NC_000001.11\t5\t6\ta\t0\t+\n")
    command = [
        "prepare promoters",
        source,
        "--reference",
        genome,
        "--assembly",
        "sacCer3",
    ]
    for words, name in ((command, "sacCer3"), (command[:-2], "custom")):
        parts = (source, "NC_000001.11", "I, II", name, "--aliases")
        refused(run(*words, "-o", output), 1, *parts, after_log=True)
    plain = tmp_path / "plain.fa.gz"  # can't be read from anywhere but its start
    plain.write_bytes(gzip.compress(b">I\nACGT\n"))
    refused(run("prepare promoters", source, "--reference", plain, "-o", output), 1)
    assert list(output.parent.iterdir()) == []
