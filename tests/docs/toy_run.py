"""A run's directory with toy models, laid out as the demo's: what the documentation's commands read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pysam

from bigbird_dna.baselines.dyads import TrackDyads, TrackWords
from bigbird_dna.baselines.kmer_model import KmerModel
from bigbird_dna.baselines.kmers import KmerTracks
from bigbird_dna.config import EncoderConfig
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.chromatin.tracks import Track
from bigbird_dna.genome.promoters import write_loci
from bigbird_dna.genome.reference import write_fasta
from bigbird_dna.genome.sequence import Locus
from bigbird_dna.huggingface.exchange import export_huggingface
from bigbird_dna.model.directory import save
from bigbird_dna.model.settings import (
    ChromatinSettings,
    NamedTrack,
    PretrainingSettings,
    PromoterSettings,
)
from tests.conftest import REPOSITORY
from tests.docs.blocks import blocks
from tests.toys import random_dna, random_model, small_tokenizer, written

TRACKS = {"ALFA": "TF", "BRAVO": "TF", "OPEN1": "DHS", "OPEN2": "DHS"}

# Of demo6, with the demo's positions and alleles (VCF's, from 1), and an effect.
VARIANTS = [
    (20_721, "A", "G", "none"),
    (47_833, "G", "T", "gain"),
    (49_301, "A", "C", "loss"),
]


def make(home: Path) -> None:
    """Write `results/demo`, `CHECKPOINT_DIRECTORY` and small files of a user's into a directory."""
    run = home / "results/demo"
    letters = list(random_dna(60_000, 6))
    for position, ref, _, _ in VARIANTS:
        letters[position - 1] = ref
    write_fasta(
        run / "genome/reference.fa.gz",
        [("demo5", random_dna(3000, 5)), ("demo6", "".join(letters))],
    )
    write_loci(run / "genome/promoters.tsv", [Locus("demo6", 20_800, "-", "P1")])
    write_fasta(run / "scores/contig.fa.gz", [("demo6", "".join(letters[:2000]))])
    (home / "mine").mkdir()
    written(
        home / "mine/run.yaml", blocks("docs/tutorials/own-genome.md", "yaml")[0].text
    )
    for name in ("resources", "workflow"):
        (home / name).symlink_to(REPOSITORY / name)
    (home / "genome.fa").write_text(f">demo6\n{''.join(letters)}\n")
    _write_models(run / "models")
    (run / "models/start-sites").symlink_to(
        REPOSITORY / "resources/models/yeast-promoters"
    )
    _write_arrays(run / "chromatin")
    _write_variants(run / "simulated/variants.vcf.gz", home / "calls.vcf")
    (home / "promoters.fa").write_text(f">one\n{random_dna(300, 8)}\n")
    (home / "regions.bed").write_text("demo6\t8000\t8200\tx\n")
    _write_checkpoint(home)


def _encoder(position: Literal["rotary", "learned"]) -> EncoderConfig:
    sizes = {"layers": 1, "hidden": 16, "heads": 2, "max_length": 512, "block_size": 16}
    return EncoderConfig(
        vocabulary=small_tokenizer().vocabulary, position_encoding=position, **sizes
    )


def _write_models(place: Path) -> None:
    promoter = PromoterSettings(
        upstream=300, downstream=100, pooling="mean", jitter=4, views=1
    )
    tracks = tuple(
        NamedTrack(track=name, group=group) for name, group in TRACKS.items()
    )
    chromatin = ChromatinSettings(
        window=600, bin=200, pooling="bin", bin_layers=0, members=1, tracks=tracks
    )
    for name, settings in (
        ("promoter-genomic", promoter),
        ("chromatin-8000-0", chromatin),
    ):
        model = random_model(small_tokenizer(), _encoder("rotary"), settings, scale=3)
        save(place / name, model, {}, {}, {})


def _write_checkpoint(home: Path) -> None:
    model = random_model(small_tokenizer(), _encoder("learned"), PretrainingSettings())
    pretrained = home / "results/demo/models/pretrained"
    save(pretrained, model, {}, {}, {})
    export_huggingface(pretrained, home / "CHECKPOINT_DIRECTORY")


def _write_arrays(place: Path) -> None:
    rng = np.random.default_rng(0)
    (place / "held-out").mkdir(parents=True)
    (place / "data").mkdir()
    labels = rng.random((60, len(TRACKS))) < 0.5
    np.save(
        place / "predictions-8000.npy",
        (labels + rng.random(labels.shape)).astype(np.float32),
    )
    np.savez(
        place / "held-out/labels.npz",
        packed=PackedLabels.from_dense(labels).packed,
        tracks=len(TRACKS),
    )
    x = rng.normal(size=(60, 4)).astype(np.float32)
    tracks = [Track(name, group) for name, group in TRACKS.items()]
    fitted = KmerTracks().fit(x, labels, x, labels)
    words = TrackWords(1, 0, (200, 1000), fitted, TrackDyads.none(len(tracks)))
    KmerModel.of(words, tracks).write(place / "kmers.npz")
    table = "".join(f"{name}\t{group}\n" for name, group in TRACKS.items())
    (place / "data/tracks.tsv").write_text("track\tgroup\n" + table)


def _write_variants(compressed: Path, plain: Path) -> None:
    plain.write_text("".join(f"{line}\n" for line in _vcf()))
    compressed.parent.mkdir()
    pysam.tabix_compress(str(plain), str(compressed))


def _vcf() -> Iterator[str]:
    yield "##fileformat=VCFv4.3"
    yield "##contig=<ID=demo6,length=60000>"
    for key in ("EFFECT", "TRACK", "CATEGORY"):
        yield f'##INFO=<ID={key},Number=1,Type=String,Description="{key}">'
    yield "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tSAMPLE"
    for position, ref, alt, effect in VARIANTS:
        yield f"demo6\t{position}\t.\t{ref}\t{alt}\t.\tPASS\tEFFECT={effect};TRACK=ALFA;CATEGORY=any\tGT\t0|1"
