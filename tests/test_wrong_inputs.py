"""Wrong files of every format: one line with the file and the line or record, an exit code, and no output."""

import gzip
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pandas as pd
import pytest

from bigbird_dna.errors import DataError, ModelError, UsageError
from bigbird_dna.genome.reference import write_fasta
from tests.cli.command import Run
from tests.conftest import REPOSITORY
from tests.genome import formats

MODEL = REPOSITORY / "resources/models/yeast-promoters-window"
START_SITES = REPOSITORY / "resources/models/yeast-promoters"
GENOME = {"chr1": "ACGTTGCAGGATCCATTAGCA" * 40, "chr2": "TTGACA" * 50}
VCF = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
VARIANT = "chr1\t5\t.\tT\tC\t.\t.\t.\n"
GFF = "chr1\tx\tgene\t5\t90\t.\t+\t.\tID=a\n"
BED = "chr1\t5\t65\ta\t0\t+\n"


def npz(**arrays: object) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def npy(array: object) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)  # type: ignore[arg-type]
    return stream.getvalue()


def parquet(**columns: object) -> bytes:
    stream = io.BytesIO()
    pd.DataFrame(columns).to_parquet(stream)
    return stream.getvalue()


def hdf5(**arrays: object) -> bytes:
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return stream.getvalue()


class Case(NamedTuple):
    """A file, a command that reads it (FILE, OUT, GENOME, MODEL, START_SITES), and what its error names."""

    words: str
    name: str
    content: str | bytes
    named: str
    error: type[Exception] = DataError


FASTA = "prepare reference FILE -o OUT.fa.gz"
SCORE = "score-promoters MODEL FILE -o OUT.tsv --device cpu"
VARIANTS = "score-variants START_SITES FILE --reference GENOME -o OUT.vcf --device cpu"
PROMOTERS = "prepare promoters FILE --reference GENOME -o OUT.tsv"
SEQUENCES = "finetune-sequences FILE -o OUT --task binary"
ARRAYS = "auc-report FILE LABELS -o OUT"
CONFIG = "check-config FILE"

CASES = {
    # FASTA
    "fasta: empty": Case(FASTA, "x.fa", "", "empty"),
    "fasta: no header": Case(FASTA, "x.fa", "ACGT\n", "'>'"),
    "fasta: no name": Case(FASTA, "x.fa", ">\nACGT\n", "line 1"),
    "fasta: no sequence": Case(FASTA, "x.fa", ">a\n>b\nAC\n", "record 'a'"),
    "fasta: name twice": Case(FASTA, "x.fa", ">a\nAC\n>a\nAC\n", "line 3"),
    "fasta: protein": Case(FASTA, "x.fa", ">a\nAC\nME\n", "record 'a', line 3"),
    "fasta: RNA": Case(FASTA, "x.fa", ">a\nACGU\n", "record 'a', line 2"),
    "fasta: binary": Case(FASTA, "x.fa", bytes(range(200)), "x.fa"),
    "fasta: cut gzip": Case(
        FASTA, "x.fa.gz", gzip.compress(b">a\nACGTA\n" * 99)[:-9], "truncated"
    ),
    "fasta: cut bgzip": Case(
        FASTA, "x.fa.gz", formats.bgzip(b">a\n" + b"ACGT" * 900)[:-28], "truncated"
    ),
    "fasta: other compression": Case(FASTA, "x.fa.bz2", b"BZh91AY", "bzip2"),
    "fasta: scored, RNA": Case(SCORE, "x.fa", ">a\nACGU\n", "record 'a', line 2"),
    # VCF
    "vcf: not VCF": Case(VARIANTS, "x.vcf", "chr1 5 A C\n", "x.vcf"),
    "vcf: empty": Case(VARIANTS, "x.vcf", "", "x.vcf"),
    "vcf: no columns": Case(VARIANTS, "x.vcf", VCF.split("\n")[0] + "\n", "x.vcf"),
    "vcf: position": Case(
        VARIANTS, "x.vcf", VCF + VARIANT + VARIANT.replace("\t5", "\tx"), "x.vcf"
    ),
    "vcf: cut gzip": Case(
        VARIANTS, "x.vcf.gz", gzip.compress((VCF + VARIANT * 99).encode())[:-9], "x.vcf"
    ),
    "vcf: other assembly": Case(
        VARIANTS, "x.vcf", VCF + VARIANT.replace("\tT", "\tG") * 9, "differs"
    ),
    # BED, SGA, GFF3, GTF
    "bed: coordinates": Case(
        PROMOTERS, "x.bed", BED + BED.replace("65", "3"), "line 2"
    ),
    "bed: columns": Case(PROMOTERS, "x.bed", BED + "chr1\t5\n", "line 2"),
    "bed: number": Case(PROMOTERS, "x.bed", BED.replace("65", "x"), "line 1"),
    "bed: contig": Case(PROMOTERS, "x.bed", BED.replace("chr1", "chr9"), "x.bed"),
    "sga: columns": Case(PROMOTERS, "x.sga", "chr1\tTSS\t5\n", "line 1"),
    "sga: strand": Case(PROMOTERS, "x.sga", "chr1\tTSS\t5\t0\t1\ta\n", "line 1"),
    "gff3: coordinates": Case(
        PROMOTERS, "x.gff3", GFF + GFF.replace("90", "3"), "line 2"
    ),
    "gff3: number": Case(PROMOTERS, "x.gff3", GFF.replace("90", "x"), "line 1"),
    "gff3: no gene": Case(PROMOTERS, "x.gff3", GFF.replace("gene", "gap"), "x.gff3"),
    "gtf: columns": Case(PROMOTERS, "x.gtf", "chr1\tx\tgene\t5\t9\n", "line 1"),
    "promoters: suffix": Case(PROMOTERS, "x.doc", BED, "x.doc"),
    # Tables
    "table: label": Case(
        SEQUENCES, "x.csv", "sequence,label\nACGT,x\nACGT,0\n", "row 1"
    ),
    "table: letter": Case(SEQUENCES, "x.csv", "sequence,label\nACXT,1\n", "row 1"),
    "table: columns": Case(SEQUENCES, "x.csv", "name,label\nACGT,1\n", "sequence"),
    "table: parquet": Case(SEQUENCES, "x.parquet", b"PAR1", "x.parquet"),
    # Configurations
    "yaml: syntax": Case(CONFIG, "x.yaml", "seed: [1\n", "line 2", UsageError),
    "yaml: key": Case(CONFIG, "x.yaml", "\nsed: 1\n", "unknown key 'sed'", UsageError),
    "yaml: value": Case(CONFIG, "x.yaml", "\nseed: x\n", "seed: ", UsageError),
    "yaml: binary": Case(CONFIG, "x.yaml", b"\xff\xfe", "utf-8", UsageError),
    # Arrays
    "npy: text": Case(ARRAYS, "x.npy", "1 2 3\n", "x.npy"),
    "npy: cut": Case(ARRAYS, "x.npy", npy(np.ones((50, 2)))[:-30], "file size"),
    "npy: objects": Case(ARRAYS, "x.npy", npy(np.array([{}, {}])), "objects"),
    "npy: rows": Case(ARRAYS, "x.npy", npy(np.ones((9, 2))), "9"),
    "npz: cut": Case(ARRAYS, "x.npz", npz(a=np.ones((50, 2)))[:-30], "x.npz"),
    "npz: several": Case(ARRAYS, "x.npz", npz(a=np.ones(50), b=np.ones(50)), "a, b"),
    "hdf5: text": Case(ARRAYS, "x.h5", "no HDF5", "x.h5"),
    "hdf5: cut": Case(ARRAYS, "x.h5", hdf5(a=np.ones((50, 2)))[:900], "x.h5"),
    "parquet: text": Case(ARRAYS, "x.parquet", "no Parquet", "x.parquet"),
    "parquet: cells": Case(
        ARRAYS, "x.parquet", parquet(a=["x"] * 50, b=["y"] * 50), "x.parquet"
    ),
    "tsv: cell": Case(ARRAYS, "x.tsv", "a\tb\n1\t2\n1\tx\n", "line 3"),
}


@pytest.fixture(scope="module")
def genome(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("genome") / "genome.fa.gz"
    write_fasta(path, GENOME.items())
    return path


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_file(name: str, run: Run, genome: Path, tmp_path: Path) -> None:
    case = CASES[name]
    path = tmp_path / case.name
    content = case.content
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    labels = tmp_path / "labels.npy"
    np.save(labels, np.arange(100).reshape(50, 2) % 3 > 1)
    known = {
        "FILE": path,
        "LABELS": labels,
        "GENOME": genome,
        "MODEL": MODEL,
        "START_SITES": START_SITES,
        "OUT": tmp_path / "out",
    }
    words = case.words
    for word, value in known.items():
        words = words.replace(word, str(value))
    before = {one: one.read_bytes() for one in tmp_path.iterdir()}
    group = 2 if words.startswith("prepare") else 1
    listed = words.split()
    result = run(" ".join(listed[:group]), *listed[group:])
    assert result.code == case.error.exit_code, result  # type: ignore[attr-defined]
    *_, line = result.err.splitlines()
    assert line.startswith("bigbird-dna: error: ")
    assert case.name in line and case.named in line, line
    assert {one: one.read_bytes() for one in tmp_path.iterdir()} == before


def remove(name: str) -> Callable[[Path], object]:
    return lambda model: (model / name).unlink()


def cut(name: str, size: int) -> Callable[[Path], object]:
    return lambda model: (model / name).write_bytes((model / name).read_bytes()[:size])


def change(**values: object) -> Callable[[Path], object]:
    def write(model: Path) -> None:
        path = model / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return write


MODELS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (remove("model.safetensors"), "model.safetensors"),
    "no configuration": (remove("config.json"), "config.json"),
    "no tokenizer": (remove("tokenizer.model"), "tokenizer"),
    "cut weights": (cut("model.safetensors", 900), "model.safetensors"),
    "cut configuration": (cut("config.json", 90), "config.json"),
    "cut tokenizer": (cut("tokenizer.model", 90), "tokenizer.model"),
    "unknown key": (change(more=1), "config.json"),
    "no directory": (shutil.rmtree, "model"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_wrong_model(name: str, run: Run, genome: Path, tmp_path: Path) -> None:
    spoil, named = MODELS[name]
    model = tmp_path / "model"
    shutil.copytree(MODEL, model)
    spoil(model)
    output = tmp_path / "out.tsv"
    result = run("score-promoters", model, genome, "-o", output, "--device", "cpu")
    assert result.code == ModelError.exit_code, result
    *_, line = result.err.splitlines()
    assert line.startswith("bigbird-dna: error: ")
    assert str(model) in line and named in line, line
    assert not output.exists()
