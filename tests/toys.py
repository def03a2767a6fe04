"""Toy genomes and models that tests share, small enough to check by hand or to learn in seconds."""

import gzip
import hashlib
import json
import math
import re
import tempfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from bigbird_dna.genome.assembly import Assembly
from bigbird_dna.genome.intervals import find_region
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.genome.sequence import Interval, reverse_complement
from bigbird_dna.genome.splits import NamedRegion, Splits
from bigbird_dna.simulate import Motif

if TYPE_CHECKING:
    from torch import Tensor

    from bigbird_dna.config.network import EncoderConfig
    from bigbird_dna.genome.chromatin.dataset import ChromatinData
    from bigbird_dna.model.model import LoadedModel
    from bigbird_dna.model.settings import Settings
    from bigbird_dna.tokens.dna import DnaTokenizer
    from bigbird_dna.tokens.interface import Tokenizer


def written(path: Path, content: str | bytes, packed: bool = False) -> Path:
    """The file, once it has this content, maybe as gzip."""
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw) if packed else raw)
    return path


def update_json(path: Path, **values: object) -> None:
    """Change keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


K = TypeVar("K")


def cases(table: Mapping[K, Sequence[object]]) -> list[tuple[K, object]]:
    """Each key with each of its values, for `pytest.mark.parametrize`."""
    return [(key, value) for key, values in table.items() for value in values]


def small_encoder(vocabulary: int = 40, **sizes: Any) -> "EncoderConfig":
    """An encoder's configuration: a layer of two heads of 8 for 128 tokens, unless `sizes` say else."""
    from bigbird_dna.config.network import EncoderConfig

    small = {"layers": 1, "hidden": 16, "heads": 2, "max_length": 128, "block_size": 8}
    return EncoderConfig(vocabulary=vocabulary, **small | sizes)


def random_model(
    tokenizer: "Tokenizer",
    config: "EncoderConfig",
    settings: "Settings",
    *,
    seed: int = 0,
    scale: float = 1.0,
) -> "LoadedModel":
    """A model of random weights; fresh ones answer 0.5 to almost everything, which `scale` changes."""
    import torch

    from bigbird_dna.model.directory import build_network, make_model

    torch.manual_seed(seed)
    network = build_network(config, settings)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter *= scale
            if (
                not parameter.any() and parameter.dim() > 1
            ):  # weights that begin at zero say nothing
                parameter[1:].normal_()
    return make_model(network.eval(), tokenizer, config, settings)


def start_site_model(seed: int = 0, max_length: int = 160, **sizes: int) -> Any:
    """A model of start sites with random weights, with windows of 120 bp unless `sizes` say else."""
    from bigbird_dna.model.settings import StartSiteSettings

    small = {"window": 120, "margin": 20, "smoothing": 3, "channels": 8}
    small |= {"layers_before": 2, "layers_after": 1, "bin": 10, "bin_layers": 1}
    settings = StartSiteSettings(**small | sizes)
    encoder = small_encoder(
        small_tokenizer().vocabulary, max_length=max_length, kmers=3
    )
    return random_model(small_tokenizer(), encoder, settings, seed=seed, scale=2)


SITE_MOTIF = "TATAAAGG"


def motif_model(**sizes: int) -> Any:
    """A model that finds start sites 9 bp downstream of the start of `SITE_MOTIF`, on either strand; the rest of
    it adds a little noise."""
    import torch

    model = start_site_model(**sizes)
    network = model.network
    with torch.no_grad():
        for module in (network.stem, network.to_bases):
            module.weight[:2] = 0.0
            module.bias[:2] = 0.0
        for layer in [*network.before, *network.after]:
            layer.convolution.weight[:2] = layer.convolution.weight[:, :2] = 0.0
            layer.convolution.bias[:2] = 0.0
        for strand, motif in enumerate((SITE_MOTIF, reverse_complement(SITE_MOTIF))):
            for place, base in enumerate(motif):
                column = place if strand == 0 else 19 - len(motif) + place
                network.stem.weight[strand, "ACGT".index(base), column] = 1.0
        network.stem.bias[:2] = -6.5
        for part in (network.output, network.bin_output):
            part.weight *= 0.02
            part.bias.zero_()
        network.output.weight[:, :2] = 4 * torch.eye(2)
    return model


def uneven_loss(hidden: "Tensor") -> "Tensor":
    """A loss of hidden states (…, D) that the LayerNorm behind them doesn't make constant.

    Their sum is one of weights 1 and biases 0, and so is that of their squares: nothing is left of gradients.
    """
    import torch

    return (
        hidden * torch.randn(hidden.shape, generator=torch.Generator().manual_seed(1))
    ).sum()


# Files that are no FASTA, and what is said of them.
BROKEN_FASTA = {
    "empty file": (b"", "the file is empty"),
    "only blank lines": (b"\n\n\n", "no FASTA record"),
    "no header": (
        b"ACGT\nACGT\n",
        "no FASTA header: the first line does not start with '>' ('A",
    ),
    "text of another kind": (b"#chrom\tstart\n", "no FASTA header"),
    "binary": (
        b"\x7fELF\x00\x01\x02",
        "no FASTA header",
    ),
    "empty record": (b">a\n>b\nACGT\n", "record 'a' has no sequence"),
    "empty record at the end": (b">a\nACGT\n>b\n", "record 'b' has no sequence"),
    "header at the end of the file": (b">a\nACGT\n>b", "record 'b' has no sequence"),
    "duplicate name": (b">a x\nACGT\n>a y\nAC\n", "line 3: the name 'a' occurs twice"),
    "no name": (b">a\nAC\n>\nACGT\n", "line 3: the record has no name"),
    "blank before the name": (b"> a\nACGT\n", "line 1: the record has no name"),
    "protein": (
        b">p\nMKV\nLLA\n",
        "record 'p', line 3: 'L' is not a DNA letter (is this a protein?)",
    ),
    "RNA": (
        b">r\nACGU\n",
        "record 'r', line 2: 'U' is not a DNA letter (is this RNA?)",
    ),
    "gap": (b">r\nACG\nA-G\n", "record 'r', line 3: '-' is not a DNA letter"),
    "digits": (b">r\n1 ACGT\n", "record 'r', line 2: '1' is not a DNA letter"),
    "bytes inside": (
        b">r\nAC\x80T\n",
        "record 'r', line 2: byte 0x80 is not a DNA letter",
    ),
    "blank at a line's end": (
        b">a\nACG\nACG \nACG\n",
        "record 'a', line 3: ' ' is not a DNA letter",
    ),
    "blanks before the end of a line of Windows": (
        b">a\r\nACG\t \r\n",
        "record 'a', line 2: byte 0x09 is not a DNA letter",
    ),
    "blank at the end of the file": (
        b">a\nACG ",
        "record 'a', line 2: ' ' is not a DNA letter",
    ),
    "blank between letters": (
        b">a\nACG ACG\n",
        "record 'a', line 2: ' ' is not a DNA letter",
    ),
    "line ends of old Macs": (
        b">a\rACGT\rACGT\r",
        "record 'a' has no sequence (line 2)",
    ),
}


def random_dna(length: int, seed: int) -> str:
    """Bases whose frequencies are uneven enough for merges to be worth it."""
    rng = np.random.default_rng(seed)
    return "".join(rng.choice(list("ACGT"), length, p=[0.35, 0.15, 0.2, 0.3]))


def hashed(sequences: Sequence[str], *shape: int) -> np.ndarray:
    """(N, *shape) numbers from 0 to 1 that change with every letter and its place: a predictor's answers."""
    sums = [
        [zlib.crc32(text.encode(), salt) for salt in range(math.prod(shape))]
        for text in sequences
    ]
    return (np.array(sums, np.float64).reshape(-1, *shape) / 2**32).astype(np.float32)


VCF = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"


@cache
def small_tokenizer() -> "DnaTokenizer":
    """A tokenizer of 40 pieces, trained once."""
    from bigbird_dna.tokens.dna import DnaTokenizer

    with tempfile.TemporaryDirectory() as directory:
        sentences = [random_dna(300, seed) for seed in range(30)]
        return DnaTokenizer.train(sentences, Path(directory, "tokenizer.model"), 40, 6)


class Texts:
    """Contigs as texts, with the members of `Reference` that variants need."""

    def __init__(self, **sequences: str) -> None:
        self.sequences = sequences
        self.contigs = {name: len(sequence) for name, sequence in sequences.items()}
        self.names = None

    def fetch(self, interval: Interval) -> str:
        sequence = self.sequences[interval.contig]
        places = range(interval.start, interval.end)
        return "".join(sequence[i] if 0 <= i < len(sequence) else "N" for i in places)


def texts(**sequences: str) -> Any:
    return Texts(**sequences)


MOTIFS = {"one": "GATTACAGATTACA", "two": "CCGGTATACCGGAT"}
PEAK = 40  # bp, the motif in its middle


def write_motif_genome(
    home: Path,
    lengths: Mapping[str, int],
    *,
    spacing: int,
    both_strands: bool = False,
    gaps: Mapping[str, tuple[int, int]] | None = None,
) -> None:
    """Write `reference.fa.gz`, and `peaks/` with a BED file of peaks of 40 bp for each motif, into `home`.

    The motifs take turns, one every `spacing` bp of random bases, with `both_strands` half of them the
    other way round. `gaps` are runs of N.
    """
    rng = np.random.default_rng(0)
    peaks: dict[str, list[str]] = {name: [] for name in MOTIFS}
    with (home / "genome.fa").open("w") as stream:
        for contig, length in lengths.items():
            letters = rng.choice(list("ACGT"), length)
            for number, start in enumerate(range(60, length - 60, spacing)):
                name = list(MOTIFS)[number % 2]
                motif = MOTIFS[name]
                if both_strands and rng.random() < 0.5:
                    motif = reverse_complement(motif)
                letters[start : start + len(motif)] = list(motif)
                first = start - (PEAK - len(motif)) // 2
                peaks[name].append(f"{contig}\t{first}\t{first + PEAK}\n")
            if gaps and contig in gaps:
                letters[slice(*gaps[contig])] = "N"
            stream.write(f">{contig}\n{''.join(letters)}\n")
    prepare_reference(home / "genome.fa", home / "reference.fa.gz")
    (home / "peaks").mkdir()
    for name, lines in peaks.items():
        (home / f"peaks/{name}.bed").write_text("".join(lines))


def label_bins(
    home: Path,
    beds: Mapping[str, Path],
    valid: str,
    test: str,
    *,
    window: int = 206,
    negatives: float = 1.0,
) -> "ChromatinData":
    """The data set `home/data`, bins of 40 bp, of `home/reference.fa.gz` and a BED file for each track."""
    from bigbird_dna.config.chromatin import ChromatinDataConfig
    from bigbird_dna.genome.assembly import load_assembly
    from bigbird_dna.genome.chromatin.dataset import build_dataset
    from bigbird_dna.genome.chromatin.track import Track
    from bigbird_dna.genome.reference import Reference

    reference, demo = Reference(home / "reference.fa.gz"), load_assembly("demo")
    tracks = [Track(name, "TF", file=path) for name, path in beds.items()]
    splits = region_splits(reference.contigs, demo, valid=[valid], test=[test])
    return build_dataset(
        home / "data",
        reference,
        demo,
        tracks,
        splits,
        ChromatinDataConfig(
            bin=40,
            window=window,
            max_n=1.0,
            negative_fraction=negatives,
            min_positives_train=1,
        ),
    )


# A simulated genome, read by other means than the simulation's.

MEGABASES = 1.2
IUPAC = {"R": "[AG]", "Y": "[CT]", "S": "[CG]", "W": "[AT]", "K": "[GT]", "M": "[AC]"}


class Demo(NamedTuple):
    """A simulated directory, read plainly."""

    directory: Path
    sequences: dict[str, str]
    loci: dict[str, list[tuple[int, int, str, str]]]


def lines(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt") as stream:
        return [
            line.rstrip("\n").split("\t") for line in stream if not line.startswith("#")
        ]


def encode(sequence: str) -> np.ndarray:
    return np.array(
        ["ACGTN".index(letter) for letter in sequence.upper()], dtype=np.uint8
    )


def predictions(
    negative_set: str = "genomic", pairs: int = 6, lift: float = 0.0, seed: int = 0
) -> pd.DataFrame:
    """Predictions of `pairs` test promoters and the negatives made for them, and of a validation promoter.

    Test promoters score `lift` deviations above their negatives.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for pair in range(pairs):
        for label, name in ((1, "positive"), (0, negative_set)):
            start = 1000 * pair + 500 * (1 - label)
            score = 1 / (1 + math.exp(-rng.normal() - lift * (label - 0.5)))
            rows.append(
                ["chr2", start, start + 400, "+", "test", name, pair, label, score]
            )
    rows.append(["chr1", 5, 405, "-", "valid", "positive", pairs, 1, 0.5])
    columns = [
        "contig",
        "start",
        "end",
        "strand",
        "split",
        "negative_set",
        "pair",
        "label",
        "probability",
    ]
    return pd.DataFrame(rows, columns=columns)


def turned(sequence: str) -> str:
    return sequence[::-1].translate(str.maketrans("ACGTN", "TGCAN"))


def regex_sites(motif: Motif, sequence: str) -> tuple[list[int], list[int]]:
    """Starts of a motif's sites on either strand, from its consensus as text."""
    pattern = "".join(
        "[ACGT]" if letter.islower() else IUPAC.get(letter, letter)
        for letter in motif.consensus
    )
    found = [match.start() for match in re.finditer(f"(?={pattern})", sequence)]
    mirrored = [
        match.start() for match in re.finditer(f"(?={pattern})", turned(sequence))
    ]
    return found, sorted(len(sequence) - start - motif.width for start in mirrored)


def region_splits(
    contigs: Mapping[str, int], assembly: Assembly, **named: Iterable[str]
) -> Splits:
    """Held-out and excluded regions by name: valid, test and exclude."""
    return Splits.from_regions(
        [
            NamedRegion(
                kind,
                kind,
                text,
                find_region(text, contigs, lambda name: assembly.match(name, contigs)),
            )
            for kind, texts in named.items()
            for text in texts
        ],
        contigs,
    )


def checksums(directory: Path) -> dict[str, str]:
    """Checksums of all files of a directory, except those that state times; "" for a directory."""
    timed = ("training.jsonl", "out.json", ".bigbird-dna.json")
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else ""
        for path in directory.rglob("*")
        if path.name not in timed
    }


def whole_contigs(contigs: Mapping[str, int]) -> list[Interval]:
    """All bases of contigs of these lengths."""
    return [Interval(contig, 0, length) for contig, length in contigs.items()]
