"""Readers of sequences and of places on them, and of data sets of them: windows, bins, predictions."""

import functools
import io
import struct
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

from bigbird_dna.baselines.dyads import TrackDyads, TrackWords
from bigbird_dna.baselines.kmer_model import KmerModel, read_kmer_model
from bigbird_dna.baselines.kmers import KmerTracks
from bigbird_dna.data.negatives import open_coding
from bigbird_dna.data.predictions import compare, read_predictions
from bigbird_dna.data.promoter_windows import read_windows
from bigbird_dna.genome import fasta_index as proofs
from bigbird_dna.genome.assembly import load_assembly, open_assembly
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.chromatin.deepsea import read_bundle_bins, unpack_bundle
from bigbird_dna.genome.chromatin.tracks import Track, read_tracks
from bigbird_dna.genome.fasta import scan_fasta, stream_fasta
from bigbird_dna.genome.intervals import place_peaks, read_peaks
from bigbird_dna.genome.promoters import lift, place, read_loci, read_promoters
from bigbird_dna.genome.records import (
    common_length,
    find_copies,
    read_records,
    read_splits,
)
from bigbird_dna.genome.reference import Reference, prepare_reference, write_fasta
from bigbird_dna.genome.sequence import Interval, Locus
from bigbird_dna.genome.sequence_tables import read_labeled_tables
from bigbird_dna.genome.similar_groups import similar_groups
from bigbird_dna.genome.variants import find_change, open_vcf, scan_vcf
from bigbird_dna.reporting.known_effects import read_known_effects, read_random
from bigbird_dna.scoring.regions import bed_regions
from tests.fuzz.reader import GZIP, Reader, file_bytes, made, member, stored
from tests.genome.formats import EMBL, GENBANK, bgzip
from tests.toys import MOTIFS, label_bins, predictions, texts, write_motif_genome

SEQUENCES = {"chr1": "ACGTTGCAGGATCCATTAGCN" * 12, "chr2": "gattacaRY" * 9}
CONTIGS = {"chr1": 248, "chr2": 81}


def _check_reference(path: Path) -> dict[str, str]:
    """The bases of a reference; they must be those that a reading from the start finds."""
    with (
        patch.object(proofs, "TICK", 0),
        Reference(path) as reference,
    ):  # nothing changes it meanwhile
        found = {
            name: reference.fetch(Interval(name, 0, size))
            for name, size in reference.contigs.items()
        }
        for name, size in reference.contigs.items():
            middle = Interval(name, size // 3, size // 2, "-")
            assert len(reference.fetch(middle)) == len(middle)
    read: dict[str, str] = {}
    for chunk in stream_fasta(path, 1000):
        read[chunk.contig] = read.get(chunk.contig, "") + chunk.sequence
    assert found == read, "wrong bases"
    return found


def _beside(suffix: str) -> Callable[[Path], object]:
    """An index beside a good reference."""

    def read(path: Path) -> object:
        text = stored("fasta")[0]
        fasta = path.with_name("x.fa" if suffix == ".fai" else "x.fa.gz")
        fasta.write_bytes(text if suffix == ".fai" else bgzip(text, block=100))
        path.rename(fasta.with_name(fasta.name + suffix))
        found = _check_reference(fasta)
        assert list(found) == list(SEQUENCES), "other contigs"
        return found

    return read


def _read_flat(path: Path) -> object:
    return prepare_reference(path, path.with_name("out.fa.gz"))


def _read_peaks(path: Path) -> object:
    return place_peaks(read_peaks(path), CONTIGS, load_assembly("demo"), widen=5)


def _read_promoters(path: Path) -> object:
    return place(read_promoters(path), CONTIGS, load_assembly("demo"), str(path))


def _read_coding(path: Path) -> object:
    found = open_coding(path, CONTIGS, load_assembly("demo"))
    for contig, (starts, ends) in found.items():
        assert (
            (starts < ends).all() and (ends[:-1] < starts[1:]).all() and starts[0] >= 0
        ), "not disjoint"
        assert ends[-1] <= CONTIGS[contig], "beyond the contig"
    return found


def _read_aliases(path: Path) -> object:
    assembly = open_assembly("GRCh38", path)
    names = [name for contig in assembly.contigs for name in contig.names]
    assert len(names) == len(set(names)), "a name of two contigs"
    return assembly.match("NC_1.1", ["chr1"])


def _read_sequences(path: Path) -> object:
    records = read_records(path)
    common_length([records])
    find_copies(records.sequences, {})
    return similar_groups([*records.sequences.values()], 0.2)


def _read_labeled(path: Path) -> object:
    found = read_labeled_tables([path])
    assert {*found.positives.sequences}.isdisjoint(found.negatives.sequences)
    return found


def _lift(path: Path) -> object:
    loci = [Locus("s", position, "+", "a") for position in range(0, 200, 7)]
    lifted = lift(loci, path, lambda name, names: name if name in names else None)
    assert all(locus.position >= 0 for locus in lifted.loci), "below 0"
    return lifted


def _read_vcf(path: Path) -> object:
    reference = texts(
        **{name: bases.upper().replace("R", "N") for name, bases in SEQUENCES.items()}
    )
    found = []
    with open_vcf(path) as vcf:
        for record in vcf.records:
            contig = record.contig if record.contig in CONTIGS else None
            reference.contigs = CONTIGS
            found += [
                find_change(contig, record.start, record.ref, alt, reference)
                for alt in record.alts
            ]
    return scan_vcf(path), found


def _scored_table(path: Path) -> object:
    truth = path.with_name("truth.vcf")
    truth.write_bytes(stored("scored-vcf")[0])
    return read_random(path, read_known_effects(path, truth).variants)


def _kmer_model(path: Path) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(40, 20)).astype(np.float32), rng.integers(0, 2, (40, 2))
    tracks = [Track("a", "TF"), Track("b", "HM")]
    words = TrackWords(
        2, 3, (4, 10), KmerTracks().fit(x, y, x, y), TrackDyads.none(2, 3)
    )
    KmerModel.of(words, tracks).write(path)


LABELED = pd.DataFrame(
    {"sequence": ["ACGT", "ggNT"], "label": [1, 0], "split": ["train", "test"]}
)
PREDICTIONS = predictions("gc", pairs=12)
WINDOWS = PREDICTIONS.drop(columns=["label", "probability"]).assign(
    name="x", homology=0
)


def _packed(frame: pd.DataFrame, compression: Any = "snappy") -> bytes:
    return bytes(frame.to_parquet(None, index=False, compression=compression))


def _read_predictions(path: Path) -> None:
    read_predictions(path)
    compare("gc", {"model": path, "k-mer": path})


def _window_labels(path: Path) -> None:
    packed = np.packbits(PREDICTIONS[["label"]].to_numpy(bool), axis=1)
    np.savez_compressed(path, packed=packed, tracks=np.array(["promoter"]))


def _read_windows(path: Path, other: str) -> None:
    if other == "labels.npz":
        path.rename(path.parent / "windows.parquet")
        _window_labels(path.parent / other)
    else:
        path.rename(path.parent / "labels.npz")
        WINDOWS.to_parquet(path.parent / other, index=False)
    read_windows(path.parent, "gc")


DATASET = ("bins.parquet", "labels.npz", "tracks.tsv", "dataset.json")


@functools.cache
def _dataset_files() -> dict[str, bytes]:
    def write(home: Path) -> None:
        write_motif_genome(home, {"a": 1200, "b": 600, "c": 600}, spacing=110)
        label_bins(
            home, {name: home / f"peaks/{name}.bed" for name in MOTIFS}, "b", "c"
        )

    files = made(write)
    return {name: files[name] for name in DATASET}


def _read_dataset(directory: Path) -> None:
    found = read_dataset(directory)
    for split in ("train", "valid", "test"):
        rows = found.rows(split)
        found.labels.positives(rows)
        found.windows(1000, rows[:100])


@functools.cache
def _reference() -> Reference:
    directory = tempfile.mkdtemp()
    write_fasta(
        Path(directory, "reference.fa.gz"),
        {"chr1": "ACGT" * 500, "chr8": "ACGT" * 200}.items(),
    )
    return Reference(Path(directory, "reference.fa.gz"))


def _read_bins(path: Path) -> None:
    read_bundle_bins(path, _reference(), load_assembly("GRCh37"))


def _tar(mode: str, **members: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=f"w:{mode}") as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_", "."))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def _archive(mode: str = "") -> bytes:
    return _tar(
        mode,
        deepsea__train_mat=b"x" * 700,
        deepsea__valid_mat=b"y",
        deepsea__test_mat=b"z" * 20,
    )


def _read_archive(path: Path) -> None:
    out = path.parent / "out"
    out.mkdir()
    unpack_bundle(path, out)


def _bundle() -> list[bytes]:
    (bins,) = stored("bundle-bins")
    return [bins, GZIP.wrap(b"", [bins]), _tar("gz", allTFs_pos_bed=bins)]


READERS = [
    Reader("fasta", ".fa", scan_fasta),
    Reader("reference", ".fa", _check_reference, "fasta"),
    Reader("reference-bgzip", ".fa.gz", _check_reference, "fasta"),
    Reader("fai", ".fai", _beside(".fai")),
    Reader(
        "gzi",
        ".gzi",
        _beside(".gzi"),
        lambda: [struct.pack("<5Q", 2, 60, 100, 120, 200)],
    ),
    Reader(
        "genbank",
        ".gb",
        _read_flat,
        lambda: [GENBANK.encode()],
        None,
        (b"LOCUS       ", b"//\n"),
    ),
    Reader(
        "embl",
        ".embl",
        _read_flat,
        lambda: [EMBL.encode()],
        None,
        (b"ID   ", b"//\n", b"SQ   "),
    ),
    Reader("bed", ".bed", _read_peaks),
    Reader("narrowpeak", ".narrowPeak.gz", _read_peaks),
    Reader("regions", ".bed", lambda path: list(bed_regions(path, texts(**SEQUENCES)))),
    *(
        Reader(f"promoters-{form}", f".{form}", _read_promoters)
        for form in ("bed", "sga", "fps")
    ),
    Reader("loci", ".tsv", read_loci),
    Reader("splits", ".tsv", read_splits),
    Reader("records", ".fa", _read_sequences),
    Reader("labeled-table", ".csv", _read_labeled),
    Reader("labeled-frame", ".parquet", _read_labeled, lambda: [_packed(LABELED)]),
    Reader("chain", ".chain", _lift, tokens=(b"chain ", b"\n\n")),
    Reader("vcf", ".vcf", _read_vcf),
    Reader("vcf-bgzip", ".vcf.gz", _read_vcf, "vcf"),
    Reader("scored-vcf", ".vcf", read_known_effects),
    Reader("scored-table", ".tsv", _scored_table),
    Reader("gff3", ".gff3", _read_promoters),
    Reader("gtf", ".gtf.gz", _read_promoters),
    Reader("coding", ".gff3", _read_coding),
    Reader("aliases", ".tsv", _read_aliases),
    Reader("fragments", ".fa", _read_flat),
    Reader("tracks", ".tsv", read_tracks),
    Reader(
        "predictions",
        ".parquet",
        _read_predictions,
        lambda: [_packed(PREDICTIONS), _packed(PREDICTIONS, compression="none")],
    ),
    Reader(
        "windows-rows",
        ".parquet",
        functools.partial(_read_windows, other="labels.npz"),
        lambda: [_packed(WINDOWS)],
    ),
    Reader(
        "windows-labels",
        ".npz",
        functools.partial(_read_windows, other="windows.parquet"),
        lambda: file_bytes(".npz", _window_labels),
    ),
    Reader(
        "kmer-model", ".npz", read_kmer_model, lambda: file_bytes(".npz", _kmer_model)
    ),
    *(
        member(f"dataset-{name}", _dataset_files, name, _read_dataset)
        for name in DATASET
    ),
    Reader("bundle-bins", ".bed", _read_bins, _bundle, GZIP),
    Reader(
        "bundle-archive",
        ".tar.gz",
        _read_archive,
        lambda: [*map(_archive, ("gz", "bz2", ""))],
    ),
]
