"""Data sets as they are built: no pair, overlapping window or near-duplicate is in two splits.

Also where training, validation and test are regions of one contig.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from bigbird_dna.config.promoters import NEGATIVE_SETS, PromoterWindowsConfig
from bigbird_dna.config.reading import load_config
from bigbird_dna.config.run import Config
from bigbird_dna.data.chromatin import prepare_data
from bigbird_dna.data.negatives import draw_candidates
from bigbird_dna.data.predictions import POSITIVE
from bigbird_dna.data.promoter_windows import (
    prepare_windows,
    read_windows,
    window_sequences,
)
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.assembly import open_assembly
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.promoters import prepare_promoters, write_loci
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import (
    Interval,
    Locus,
    base_codes,
    known_before,
    reverse_complement,
    turned_word,
    words_ending,
)
from bigbird_dna.tokens.encode import tokenize, train_tokenizer
from bigbird_dna.tokens.load import load_tokenizer
from bigbird_dna.tokens.store import TokenStore
from tests.conftest import REPOSITORY
from tests.golden.messages import fails
from tests.tiny_run import SETTINGS as TINY
from tests.toys import Demo, random_dna

K = 16
SHARE = 0.5
"""Of a window's k-mers among those of another split's windows: from this on it is near a duplicate."""


def crossing_pairs(rows: pd.DataFrame) -> list[int]:
    """Pairs with windows in several splits."""
    splits = rows.groupby("pair")["split"].nunique()
    return [int(pair) for pair in splits.index[splits > 1]]


def crossing_overlaps(rows: pd.DataFrame) -> list[tuple[str, int]]:
    """Where windows (contig start end split) of different splits share a base."""
    found = []
    for contig, own in rows.groupby("contig"):
        ends: dict[str, int] = {}  # furthest, by split
        for start, end, split in own.sort_values("start")[
            ["start", "end", "split"]
        ].itertuples(index=False):
            if any(
                furthest > start for other, furthest in ends.items() if other != split
            ):
                found.append((str(contig), int(start)))
            ends[split] = max(ends.get(split, 0), end)
    return found


def by_split(rows: pd.DataFrame, sequences: Sequence[str]) -> dict[str, list[str]]:
    """The sequences of each split."""
    return {
        split: [sequences[row] for row in own]
        for split, own in rows.groupby("split").indices.items()
    }


def crossing_copies(sequences: Mapping[str, Sequence[str]]) -> int:
    """Held-out windows that share `SHARE` of their k-mers with one training window, of either strand."""
    learned = list(sequences["train"])
    words, known = _kmers(learned)
    found = 0
    for split, other, number in near_duplicates(sequences):
        if other != "train":
            continue
        own, own_known = _kmers([sequences[split][number]])
        shared = (np.isin(words, own[own_known]) & known).sum(axis=1)
        # Only those that may: a training window of one repeated word has it many times.
        for row in np.flatnonzero(shared >= SHARE * own_known.sum()).tolist():
            if np.isin(own[own_known], words[row][known[row]]).mean() >= SHARE:
                found += 1
                break
    return found


def near_duplicates(
    sequences: Mapping[str, Sequence[str]],
) -> list[tuple[str, str, int]]:
    """Split, other split and number of each window that shares `SHARE` of its k-mers with the other's.

    Sequences have one length. A k-mer and its reverse complement are one. The k-mers of the other split are
    taken together: a window that is near no window of it by this count is near none.
    """
    kmers = {split: _kmers(texts) for split, texts in sequences.items()}
    found = []
    for other, (words, known) in kmers.items():
        together = np.sort(words[known])
        for split, (own, own_known) in kmers.items():
            if split == other or not len(together):
                continue
            place = np.searchsorted(together, own).clip(max=len(together) - 1)
            shared = ((together[place] == own) & own_known).sum(axis=1)
            near = shared >= SHARE * own_known.sum(axis=1).clip(1)
            found += [
                (split, other, number) for number in np.flatnonzero(near).tolist()
            ]
    return found


def _kmers(sequences: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The k-mer at each place of sequences of one length, a row each, and whether it is one without N."""
    codes = base_codes("N".join([*sequences, ""]))
    words, known = words_ending(codes, K), known_before(codes) >= K
    kmers = np.minimum(words, turned_word(words, K))
    return kmers.reshape(len(sequences), -1), known.reshape(len(sequences), -1)


SETS = [*NEGATIVE_SETS]


@pytest.mark.parametrize("valid", ["[two]", "['two:1-6,000']"])
def test_promoter_windows_of_every_negative_set(
    tiny_config: Path, tmp_path: Path, valid: str
) -> None:
    sets = f"promoters.windows.negative_sets=[{', '.join(SETS)}]"
    config = load_config(
        tiny_config,
        [sets, f"genome.valid={valid}"],
    )
    paths = config.paths
    prepare_windows(config, paths.reference, paths.promoters, tmp_path / "windows")
    for name in SETS:
        rows = read_windows(tmp_path / "windows", name).rows
        sequences = window_sequences(Reference(paths.reference), rows, config.seed)
        assert set(rows["split"]) == {"train", "valid", "test"}
        assert crossing_pairs(rows) == []
        assert crossing_overlaps(rows) == []
        assert near_duplicates(by_split(rows, sequences)) == []


@pytest.mark.parametrize(
    "held_out", [("[demo5]", "[demo6]"), ("['demo5:1-100,000']", "['demo5:100,001-']")]
)
def test_bins_of_the_demo(
    demo: Demo, tmp_path: Path, held_out: tuple[str, str]
) -> None:
    valid, test = held_out
    changes = [
        f"genome.valid={valid}",
        f"genome.test={test}",
        "chromatin.data.min_positives_heldout=1",
    ]
    changes += ["chromatin.data.min_positives_train=1", "chromatin.variants=null"]
    tracks, reference = demo.directory / "tracks.tsv", tmp_path / "reference.fa.gz"
    changes.append(f"chromatin.data.tracks={tracks}")
    config = load_config(REPOSITORY / "workflow/config/demo.yaml", changes)
    prepare_reference(demo.directory / "genome.fa.gz", reference)
    prepare_data(config, reference, tmp_path / "data", tracks=tracks)
    data, genome = read_dataset(tmp_path / "data"), Reference(reference)
    around = data.windows(config.chromatin.data.widest, np.arange(len(data.bins)))
    rows = pd.DataFrame(
        [(one.contig, max(one.start, 0), one.end) for one in around],
        columns=["contig", "start", "end"],
    ).assign(split=data.bins["split"].to_numpy())
    assert (
        set(rows["split"]) == {"train", "valid", "test"}
        and crossing_overlaps(rows) == []
    )
    texts = [
        genome.fetch(bin_)
        for bin_ in data.windows(data.bin_size, np.arange(len(data.bins)))
    ]
    assert near_duplicates(by_split(data.bins.reset_index(drop=True), texts)) == []


def test_what_crosses_is_found() -> None:
    one, other = random_dna(300, 1), random_dna(300, 2)
    rows = pd.DataFrame(
        {
            "contig": ["a", "a", "a", "b"],
            "start": [0, 300, 900, 899],
            "end": [300, 600, 1200, 1199],
            "split": ["train", "test", "test", "train"],
            "negative_set": POSITIVE,
            "pair": [0, 1, 2, 3],
        }
    )
    assert crossing_pairs(rows) == [] and crossing_overlaps(rows) == []
    assert crossing_pairs(rows.assign(pair=[0, 1, 1, 0])) == []
    assert crossing_pairs(rows.assign(pair=[0, 0, 2, 3])) == [0]
    assert crossing_overlaps(rows.assign(start=[0, 299, 900, 899])) == [("a", 299)]
    assert crossing_overlaps(rows.assign(contig=["a", "a", "b", "b"])) == [("b", 900)]
    assert (
        near_duplicates({"train": [one], "test": [other], "valid": ["N" * 300]}) == []
    )
    turned = one[:140] + other[:160]
    texts = {"train": [one, other[::-1]], "test": [turned, one[60:] + other[:60]]}
    # Half of the first is one's and half the other's, which no one window has.
    assert crossing_copies(texts) == 1
    found = near_duplicates(texts)
    assert sorted(found) == [("test", "train", 1), ("train", "test", 0)]


# One contig

SIZE = 60_000
# 0-based and half-open; what lies between is for training.
VALID, TEST, EXCLUDED = (20_000, 28_000), (40_000, 50_000), (55_000, 56_000)
BINS = (30_000, 33_000)  # held out for the test of chromatin alone
EVERY = 97  # bp between promoters: their windows lie on every border
SETTINGS: dict[str, Any] = {
    "genome": {
        "assembly": "custom",
        "name": "bug",
        "reference": "genome.fa",
        "valid": ["c:20,001-28,000"],
        "test": ["c:40001-50000"],
        "exclude": ["c:55,001-56,000"],
    },
    "tokens": {
        **TINY["tokens"],
        "corpus_megabases": 1,
        "genome_passes": 4,
        "max_start_offset": 300,
    },
    "promoters": {
        "windows": {
            "upstream": 60,
            "downstream": 40,
            "negatives": 2,
            "min_tss_distance": 20,
        }
    },
    "chromatin": {
        "data": {
            **{
                "tracks": "peaks",
                "bin": 50,
                "window": 250,
                "shift_bp": 0,
            },
            **{"min_positives_train": 5, "test_regions": ["c:30,001-33,000"]},
        }
    },
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A prepared reference, promoters and peaks; what is held out for the test has TTAGGG again and again."""
    home = tmp_path_factory.mktemp("bug")
    sequence = random_dna(SIZE, 3)
    for start, end in (TEST, BINS):
        repeats = "TTAGGG" * ((end - start) // 24)
        sequence = sequence[:start] + repeats + sequence[start + len(repeats) :]
    (home / "genome.fa").write_text(f">c\n{sequence}\n")
    (home / "peaks").mkdir()
    (home / "peaks/one.bed").write_text(
        "".join(f"c\t{at}\t{at + 60}\n" for at in range(100, SIZE, 300))
    )
    path = home / "run.yaml"
    path.write_text(
        yaml.safe_dump(
            {"results": str(home / "results"), "data_dir": str(home), **SETTINGS}
        )
    )
    config = load_config(path, [f"chromatin.data.tracks={home}/peaks"])
    prepare_reference(home / "genome.fa", config.paths.reference)
    write_loci(
        config.paths.promoters,
        [Locus("c", at, "+-"[at % 2], f"p{at}") for at in range(20, SIZE, EVERY)],  # type: ignore[arg-type]
    )
    return config


@pytest.fixture(scope="module")
def tokens(config: Config) -> Path:
    paths = config.paths
    train_tokenizer(config, paths.reference, paths.tokenizer)
    tokenize(config, paths.reference, paths.tokenizer, paths.tokens)
    return paths.tokens


def inside(start: int, end: int, region: tuple[int, int]) -> bool:
    return region[0] <= start and end <= region[1]


def test_tokenizer_and_stores_have_nothing_of_what_is_held_out(
    config: Config, tokens: Path
) -> None:
    pieces = load_tokenizer(config.paths.tokenizer)
    assert not {"TTAGGG", "CCCTAA"} & {*pieces.pieces}
    stores = {
        split: TokenStore(tokens / split, pieces)
        for split in ("train", "valid", "test")
    }
    assert {split: store.info["stretches"] for split, store in stores.items()} == {
        "train": [
            "c:1-20000",
            "c:28001-30000",
            "c:33001-40000",
            "c:50001-55000",
            "c:56001-60000",
        ],
        "valid": ["c:20001-28000"],
        "test": ["c:30001-33000", "c:40001-50000"],
    }
    with Reference(config.paths.reference) as reference:
        for store in stores.values():
            assert store.info["contigs"] == ["c"]
            ends = [
                place.rpartition(":")[2].split("-") for place in store.info["stretches"]
            ]
            whole = [
                reference.fetch(Interval("c", int(first) - 1, int(last)))
                for first, last in ends
            ]
            whole += [reverse_complement(text) for text in whole]
            sentences = np.asarray(store.sentences).tolist()
            for first, last in pairwise(sentences):
                sentence = pieces.decode(store.tokens[first:last])
                assert any(sentence in text for text in whole)
    # 38,000 bases in four passes, of which each leaves out up to 300 at the start of a stretch.
    assert 4 * (38_000 - 5 * 300) <= stores["train"].info["bases"] <= 4 * 38_000


def test_windows_and_negatives_keep_to_their_split(config: Config) -> None:
    prepare_windows(
        config, config.paths.reference, config.paths.promoters, config.paths.windows
    )
    found = {
        name: read_windows(config.paths.windows, name).rows
        for name in ("genomic", "permuted")
    }
    regions = {"valid": [VALID], "test": [TEST]}
    # What is held out for chromatin alone is for training here.
    regions["train"] = [
        (0, VALID[0]),
        (VALID[1], TEST[0]),
        (TEST[1], EXCLUDED[0]),
        (EXCLUDED[1], SIZE),
    ]
    for rows in found.values():
        assert {*rows["split"]} == {"train", "valid", "test"}
        for start, end, split in zip(
            rows["start"], rows["end"], rows["split"], strict=True
        ):
            assert any(inside(start, end, region) for region in regions[split])
    counts = json.loads((config.paths.windows / "windows.json").read_text())
    expected = dict.fromkeys(
        (
            "promoters",
            "in an excluded region",
            "window leaves the contig",
            "window leaves its split",
        ),
        0,
    )
    for at in range(20, SIZE, EVERY):
        start = at - 60 if at % 2 == 0 else at - 39
        if inside(at, at + 1, EXCLUDED):
            kind = "in an excluded region"
        elif not inside(start, start + 100, (0, SIZE)):
            kind = "window leaves the contig"
        elif any(
            inside(start, start + 100, region)
            for own in regions.values()
            for region in own
        ):
            kind = "promoters"
        else:
            kind = "window leaves its split"
        expected[kind] += 1
    assert min(expected.values()) > 0
    assert {reason: counts[reason] for reason in expected} == expected
    missing = counts["genomic negatives not found"]
    assert missing == 0


def test_negatives_of_a_stretch_are_those_of_its_place() -> None:
    """The same windows as of the sequence alone, where it lies, and away from the promoters around it."""
    sequence, positions = random_dna(3000, 1), np.array([4010, 4500, 6995, 9000])
    config = PromoterWindowsConfig(upstream=30, downstream=10, min_tss_distance=25)
    (moved, gc), (alone, other) = (
        draw_candidates(
            Interval("c", start, start + 3000),
            *(
                sequence,
                positions - 4000 + start,
                config,
                9000,
                np.random.default_rng(1),
            ),
        )
        for start in (4000, 0)
    )
    assert [(w.start - 4000, w.end - 4000, w.strand) for w in moved] == [
        (*astuple(w)[1:],) for w in alone
    ]
    assert gc.tolist() == other.tolist() and all(
        w.start >= 4000 and w.end <= 7000 for w in moved
    )
    assert any(w.end > 6960 for w in moved)


def test_bins_know_the_regions_of_the_genome_whichever_key_names_one(
    config: Config, tmp_path: Path
) -> None:
    prepare_data(config, config.paths.reference, config.paths.chromatin_data)
    data = read_dataset(config.paths.chromatin_data)
    assert data.info["regions"] == {
        "valid": ["c:20001-28000"],
        "test": ["c:30001-33000", "c:40001-50000"],
        "exclude": ["c:55001-56000"],
    }
    held_out = {"valid": [VALID], "test": [BINS, TEST]}
    for split, start, end in zip(
        data.bins["split"], data.bins["start"], data.bins["end"], strict=True
    ):
        middle = (start + end) // 2
        own = [place for place in held_out.get(split, ()) if inside(start, end, place)]
        assert bool(own) == (split != "train")
        if split == "train":  # no window of its reaches what is held out
            regions = (region for each in held_out.values() for region in each)
            assert not any(
                middle - 125 < last and first < middle + 125 for first, last in regions
            )
    # They are the same whichever key names a region.
    data = config.chromatin.data
    moved = load_config(
        Path(config.results).parent / "run.yaml",
        [
            *(
                f"chromatin.data.tracks={data.tracks}",
                "genome.valid=[]",
                "genome.test=[]",
            ),
            f"chromatin.data.valid_regions={json.dumps(config.genome.valid)}",
            f"chromatin.data.test_regions={json.dumps(config.genome.test + data.test_regions)}",
        ],
    )
    for name, each in {"one": config, "other": moved}.items():
        prepare_data(each, config.paths.reference, tmp_path / name)
    for name in ("bins.parquet", "labels.npz", "dataset.json", "tracks.tsv"):
        assert (tmp_path / "one" / name).read_bytes() == (
            tmp_path / "other" / name
        ).read_bytes()


def test_a_split_of_n_alone_has_no_promoters_and_no_negatives(
    config: Config, tmp_path: Path
) -> None:
    (tmp_path / "genome.fa").write_text(
        f">c\n{random_dna(9000, 1)}{'N' * 3000}{random_dna(3000, 2)}\n"
    )
    prepare_reference(tmp_path / "genome.fa", tmp_path / "reference.fa.gz")
    write_loci(
        tmp_path / "loci.tsv",
        [Locus("c", at, "+", f"p{at}") for at in range(500, 14_500, 500)],
    )
    genome = config.genome.model_copy(
        update={"valid": ("c:9001-12000",), "test": ("c:12001-",), "exclude": ()}
    )
    changed = config.model_copy(update={"genome": genome})
    prepare_windows(
        changed,
        tmp_path / "reference.fa.gz",
        tmp_path / "loci.tsv",
        tmp_path / "windows",
    )
    rows = read_windows(tmp_path / "windows", "genomic").rows
    assert {*rows["split"]} == {"train", "test"}


# A genome that no table knows, in pieces, named otherwise in each file: from its FASTA to its data sets


STARTS = {"NC_1.1": 3_000_000, "NC_2.1": 500_000, "NC_3.1": 0, "NC_9.1": 0}
FRAGMENT = 20_000
CHR = {"NC_1.1": "chrI", "NC_2.1": "chrII", "NC_3.1": "chrIII"}
OWN_SETTINGS: dict[str, Any] = {
    "genome": {
        "assembly": "custom",
        "name": "my-yeast",
        "aliases": "aliases.tsv",
        "reference": "genome.fa",
        "valid": ["chrI?"],
        "test": ["chrIII"],
        "exclude": ["NC_9*"],
    },
    "tokens": {**TINY["tokens"], "corpus_megabases": 0.02, "max_start_offset": 300},
    "promoters": {
        "windows": {
            "upstream": 60,
            "downstream": 40,
            "negatives": 3,
            "min_tss_distance": 50,
        }
    },
    "chromatin": {
        "data": {
            **{
                "tracks": "peaks",
                "bin": 50,
                "window": 200,
                "shift_bp": 0,
            },
            **{"min_positives_train": 5, "min_positives_heldout": 1, "max_n": 0.2},
        }
    },
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A user's files, of which reference and promoters are prepared.

    They are a FASTA of pieces with accessions, genes and peaks by chromosome, and aliases.
    """
    home = tmp_path_factory.mktemp("own genome")
    genome, genes, peaks = "", "##gff-version 3\n", ""
    for number, (accession, start) in enumerate(STARTS.items()):
        genome += f">{accession}\n{'N' * start}{random_dna(FRAGMENT, number)}\n"
        for gene in range(300, FRAGMENT - 300, 400) if accession in CHR else ():
            first, strand = start + gene, "+-"[gene % 3 == 0]
            genes += f"{CHR[accession]}\tx\tgene\t{first}\t{first + 99}\t.\t{strand}\t.\tID=g{first}\n"
            peaks += f"{CHR[accession]}\t{first}\t{first + 100}\n"
    genes += "chrXX\tx\tgene\t5\t9\t.\t+\t.\tID=lost\n"
    (home / "genome.fa").write_text(genome)
    (home / "genes.gff3").write_text(genes)
    (home / "peaks").mkdir()
    (home / "peaks/one.bed").write_text(peaks + "chrXX\t5\t9\n")
    (home / "aliases.tsv").write_text("".join(f"{CHR[name]}\t{name}\n" for name in CHR))
    (home / "run.yaml").write_text(
        yaml.safe_dump(
            {"results": str(home / "results"), "data_dir": str(home), **OWN_SETTINGS}
        )
    )
    config = load_config(home / "run.yaml", [f"chromatin.data.tracks={home}/peaks"])
    assembly = open_assembly("custom", home / "aliases.tsv", "my-yeast")
    prepare_reference(home / "genome.fa", config.paths.reference, assembly)
    prepare_promoters(
        home / "genes.gff3", config.paths.reference, config.paths.promoters, assembly
    )
    return config


def test_n_costs_no_tokens_and_hardly_time(own: Config) -> None:
    paths = own.paths
    train_tokenizer(own, paths.reference, paths.tokenizer)
    before = time.process_time()
    tokenize(own, paths.reference, paths.tokenizer, paths.tokens)
    took = time.process_time() - before
    stores = {
        split: TokenStore(paths.token_store(split))
        for split in ("train", "valid", "test")
    }
    contigs = {split: store.info["contigs"] for split, store in stores.items()}
    assert contigs == {"train": ["NC_1.1"], "valid": ["NC_2.1"], "test": ["NC_3.1"]}
    assert 2 * FRAGMENT - 200 <= stores["train"].info["bases"] <= 2 * FRAGMENT + 200
    assert stores["train"].info["skipped_bases"] > 5_990_000
    assert took < 10  # 6 Mb of N twice


def test_every_promoter_has_its_genomic_negatives_among_the_n(own: Config) -> None:
    prepare_windows(own, own.paths.reference, own.paths.promoters, own.paths.windows)
    counts = json.loads((own.paths.windows / "windows.json").read_text())
    missing = counts["genomic negatives not found"]
    assert missing == 0
    windows = read_windows(own.paths.windows, "genomic")
    found = windows.rows[windows.labels == 0]
    assert found.groupby("split").size().to_dict() == {
        "train": 3 * 49,
        "valid": 49,
        "test": 49,
    }
    with Reference(own.paths.reference) as reference:
        places = zip(found["contig"], found["start"], found["end"], strict=True)
        assert not any("N" in reference.fetch(Interval(*place)) for place in places)
    assert not found.duplicated(["contig", "start", "strand"]).any()


def test_peaks_find_their_contigs(
    own: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare_data(own, own.paths.reference, own.paths.chromatin_data)
    said = capsys.readouterr().err
    assert "warning: 1 of 148 peaks" in said and "chrXX 1" in said
    data = read_dataset(own.paths.chromatin_data)
    assert data.info["assembly"] == "my-yeast"
    regions = {
        "valid": ["NC_2.1:1-520000"],
        "test": ["NC_3.1:1-20000"],
        "exclude": ["NC_9.1:1-20000"],
    }
    assert data.info["regions"] == regions
    other = own.model_copy(
        update={"genome": own.genome.model_copy(update={"aliases": None})}
    )
    with fails(ConfigError):
        tokenize(other, own.paths.reference, own.paths.tokenizer, Path("x"))
