"""Damaged files of every format of the genome, a configuration and a model: read, or one clear error."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.config.reading import load_config
from bigbird_dna.errors import BigBirdDnaError
from bigbird_dna.genome.assembly import open_assembly
from bigbird_dna.genome.intervals import read_peaks
from bigbird_dna.genome.promoters import read_loci, read_promoters
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.genome.sequence_tables import stream_sequences
from bigbird_dna.model.directory import load
from tests.conftest import REPOSITORY
from tests.faults.test_readers import read_variants
from tests.genome import formats

FASTA = ">chr1\nACGTTGCAGGATCCATTAGCN\nACGTTGCAGG\n>chr2\ngattacaRY\n"
EXAMPLES = REPOSITORY / "resources/examples"
MODEL = REPOSITORY / "resources/models/yeast-promoters-window"


def _prepare(path: Path) -> object:
    return prepare_reference(path, path.parent / "out.fa.gz")


def _load_model(path: Path) -> object:
    for part in MODEL.iterdir():
        if part.name != path.name:
            path.with_name(part.name).symlink_to(part)
    return load(path.parent)


READERS: dict[str, tuple[str, Callable[[Path], object], bytes]] = {
    "fasta": ("x.fa", _prepare, FASTA.encode()),
    "bgzip": ("x.fa.gz", _prepare, formats.bgzip(FASTA.encode(), block=30)),
    "records": ("x.fa", lambda path: list(stream_sequences(path)), FASTA.encode()),
    "aliases": (
        "x.txt",
        lambda path: open_assembly("custom", path),
        formats.REPORT.encode(),
    ),
    "gff3": (
        "x.gff3",
        read_promoters,
        formats.gff("CDS", "c", 4, 9, "+", "ID=a").encode() * 3,
    ),
    "sga": ("x.sga", read_promoters, b"c\tTSS\t5\t+\t1\ta\nc\tTSS\t9\t-\t1\tb\n"),
    "bed": ("x.bed", read_promoters, b"c\t5\t65\ta\t0\t+\nc\t105\t165\tb\t0\t-\n"),
    "peaks": ("x.narrowPeak", read_peaks, b"c\t5\t65\ta\t0\t.\t1\t-1\t-1\t20\n" * 3),
    "loci": (
        "x.tsv",
        read_loci,
        (EXAMPLES / "yeast_VII_20kb.promoters.tsv").read_bytes(),
    ),
    "vcf": (
        "x.vcf",
        read_variants,
        formats.vcf_text("c\t5\t.\tA\tC,G\t.\t.\tAF=0.1,0.2").encode(),
    ),
    "configuration": (
        "x.yaml",
        load_config,
        (REPOSITORY / "workflow/config/demo.yaml").read_bytes(),
    ),
    "model configuration": (
        "config.json",
        _load_model,
        (MODEL / "config.json").read_bytes(),
    ),
    "weights": (
        "model.safetensors",
        _load_model,
        (MODEL / "model.safetensors").read_bytes(),
    ),
    "tokenizer": (
        "tokenizer.model",
        _load_model,
        (MODEL / "tokenizer.model").read_bytes(),
    ),
}
INSERTED = [b"", b"-1", b"9" * 400, b"1e999", b"NaN", b"\t", b"\n", b"\0", b"\xff"]


@pytest.mark.parametrize("name", READERS)
def test_a_whole_file_is_read(tmp_path: Path, name: str) -> None:
    file, read, content = READERS[name]
    (tmp_path / file).write_bytes(content)
    read(tmp_path / file)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(name: str, data: st.DataObject) -> None:
    """A part is cut out, or something else stands in its place."""
    file, read, content = READERS[name]
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 40)))
    end = data.draw(st.sampled_from([end, len(content)]))
    damaged = content[:start] + data.draw(st.sampled_from(INSERTED)) + content[end:]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, file)
        path.write_bytes(damaged)
        try:
            read(path)
        except BigBirdDnaError as error:
            assert str(error).isprintable() and len(str(error)) < 1500
