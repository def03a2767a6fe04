"""A genome of one contig, as a bacterium's: regions are held out of everything, from FASTA to data sets."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bigbird_dna.config import Config, load_config
from bigbird_dna.data.chromatin import prepare_data
from bigbird_dna.data.negatives import draw_candidates
from bigbird_dna.data.promoter_windows import prepare_windows, read_windows
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.promoters import write_loci
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import Interval, Locus, reverse_complement
from bigbird_dna.tokens.encode import tokenize, train_tokenizer, write_token_statistics
from bigbird_dna.tokens.store import TokenStore
from bigbird_dna.tokens.text import load_tokenizer
from tests.toys import random_dna

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
        "vocabulary": 32,
        "corpus_megabases": 1,
        "genome_passes": 4,
        "max_start_offset": 300,
        "sentence_bases": [50, 100],
        "sentences_per_document": [5, 10],
    },
    "promoters": {"windows": {"upstream": 60, "downstream": 40, "negatives": 2, "min_tss_distance": 20}},
    "chromatin": {
        "data": {
            **{"tracks": "peaks", "bin": 50, "window": 250, "compare_window": None, "shift": 0},
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
    (home / "peaks/one.bed").write_text("".join(f"c\t{at}\t{at + 60}\n" for at in range(100, SIZE, 300)))
    path = home / "run.yaml"
    path.write_text(yaml.safe_dump({"results": str(home / "results"), "data_dir": str(home), **SETTINGS}))
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


def test_tokenizer_and_stores_have_nothing_of_what_is_held_out(config: Config, tokens: Path) -> None:
    pieces = load_tokenizer(config.paths.tokenizer)
    assert not {"TTAGGG", "CCCTAA"} & {*pieces.pieces}
    stores = {
        split: TokenStore.open(tokens / split, pieces, verify=True) for split in ("train", "valid", "test")
    }
    assert {split: store.info["stretches"] for split, store in stores.items()} == {
        "train": ["c:1-20000", "c:28001-30000", "c:33001-40000", "c:50001-55000", "c:56001-60000"],
        "valid": ["c:20001-28000"],
        "test": ["c:30001-33000", "c:40001-50000"],
    }
    with Reference(config.paths.reference) as reference:
        for store in stores.values():
            assert store.info["contigs"] == ["c"]
            ends = [place.rpartition(":")[2].split("-") for place in store.info["stretches"]]
            whole = [reference.fetch(Interval("c", int(first) - 1, int(last))) for first, last in ends]
            whole += [reverse_complement(text) for text in whole]
            sentences = store.sentences.tolist()
            for first, last in pairwise(sentences):
                sentence = pieces.decode(store.tokens[first:last])
                assert any(sentence in text for text in whole)
    # 38,000 bases in four passes, of which each leaves out up to 300 at the start of a stretch.
    assert 4 * (38_000 - 5 * 300) <= stores["train"].info["bases"] <= 4 * 38_000


def test_statistics_count_each_stretch_for_its_split(config: Config, tokens: Path, tmp_path: Path) -> None:
    write_token_statistics(config, config.paths.reference, config.paths.tokenizer, tmp_path / "s.json")
    found = json.loads((tmp_path / "s.json").read_text())
    bases = {split: values["bases"] for split, values in found["splits"].items()}
    assert bases == {"train": 38_000, "valid": 8_000, "test": 13_000}
    assert found["genome"]["bases"] == SIZE
    assert found["contigs"]["c:55001-56000"]["split"] is None


def test_windows_and_negatives_keep_to_their_split(config: Config) -> None:
    prepare_windows(config, config.paths.reference, config.paths.promoters, config.paths.windows)
    found = {name: read_windows(config.paths.windows, name).rows for name in ("genomic", "permuted")}
    regions = {"valid": [VALID], "test": [TEST]}
    # What is held out for chromatin alone is for training here.
    regions["train"] = [(0, VALID[0]), (VALID[1], TEST[0]), (TEST[1], EXCLUDED[0]), (EXCLUDED[1], SIZE)]
    for rows in found.values():
        assert {*rows["split"]} == {"train", "valid", "test"}
        for start, end, split in zip(rows["start"], rows["end"], rows["split"], strict=True):
            assert any(inside(start, end, region) for region in regions[split])
    counts = json.loads((config.paths.windows / "windows.json").read_text())
    expected = dict.fromkeys(("promoters", "excluded", "leaves the contig", "leaves its split"), 0)
    for at in range(20, SIZE, EVERY):
        start = at - 60 if at % 2 == 0 else at - 39
        if inside(at, at + 1, EXCLUDED):
            kind = "excluded"
        elif not inside(start, start + 100, (0, SIZE)):
            kind = "leaves the contig"
        elif any(inside(start, start + 100, region) for own in regions.values() for region in own):
            kind = "promoters"
        else:
            kind = "leaves its split"
        expected[kind] += 1
    assert min(expected.values()) > 0
    assert (counts["promoters"], counts["in an excluded region"]) == (
        expected["promoters"],
        expected["excluded"],
    )
    assert counts["window leaves its split"] == expected["leaves its split"]
    assert counts["window leaves the contig"] == expected["leaves the contig"]
    assert counts["genomic negatives not found"] == 0


def test_negatives_of_a_stretch_are_those_of_its_place() -> None:
    """The same windows as of the sequence alone, where it lies, and away from the promoters around it."""
    sequence, positions = random_dna(3000, 1), np.array([4010, 4500, 6995, 9000])
    settings: dict[str, int] = {"upstream": 30, "downstream": 10, "distance": 25, "count": 9000}
    moved, gc = draw_candidates(
        "c", sequence, positions, start=4000, rng=np.random.default_rng(1), **settings
    )
    alone, other = draw_candidates("c", sequence, positions - 4000, rng=np.random.default_rng(1), **settings)
    assert [(w.start - 4000, w.end - 4000, w.strand) for w in moved] == [
        (w.start, w.end, w.strand) for w in alone
    ]
    assert gc.tolist() == other.tolist() and all(w.start >= 4000 and w.end <= 7000 for w in moved)
    assert any(w.end > 6960 for w in moved)


def test_bins_know_the_regions_of_the_genome(config: Config) -> None:
    prepare_data(config, config.paths.reference, config.paths.chromatin_data)
    data = read_dataset(config.paths.chromatin_data)
    assert data.info["regions"] == {
        "valid": ["c:20001-28000"],
        "test": ["c:30001-33000", "c:40001-50000"],
        "exclude": ["c:55001-56000"],
    }
    held_out = {"valid": [VALID], "test": [BINS, TEST]}
    for split, start, end in zip(data.bins["split"], data.bins["start"], data.bins["end"], strict=True):
        middle = (start + end) // 2
        own = [place for place in held_out.get(split, ()) if inside(start, end, place)]
        assert bool(own) == (split != "train")
        if split == "train":  # no window of its reaches what is held out
            assert not any(
                middle - 125 < last and first < middle + 125
                for each in held_out.values()
                for first, last in each
            )


def test_bins_are_the_same_whichever_key_names_a_region(config: Config, tmp_path: Path) -> None:
    data = config.chromatin.data
    moved = load_config(
        Path(config.results).parent / "run.yaml",
        [
            *(f"chromatin.data.tracks={data.tracks}", "genome.valid=[]", "genome.test=[]"),
            f"chromatin.data.valid_regions={json.dumps(config.genome.valid)}",
            f"chromatin.data.test_regions={json.dumps(config.genome.test + data.test_regions)}",
        ],
    )
    for name, each in {"one": config, "other": moved}.items():
        prepare_data(each, config.paths.reference, tmp_path / name)
    for name in ("bins.parquet", "labels.npz", "dataset.json", "tracks.tsv"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_a_split_of_n_alone_has_no_promoters_and_no_negatives(config: Config, tmp_path: Path) -> None:
    (tmp_path / "genome.fa").write_text(f">c\n{random_dna(9000, 1)}{'N' * 3000}{random_dna(3000, 2)}\n")
    prepare_reference(tmp_path / "genome.fa", tmp_path / "reference.fa.gz")
    write_loci(tmp_path / "loci.tsv", [Locus("c", at, "+", f"p{at}") for at in range(500, 14_500, 500)])
    genome = config.genome.model_copy(
        update={"valid": ("c:9001-12000",), "test": ("c:12001-",), "exclude": ()}
    )
    changed = config.model_copy(update={"genome": genome})
    prepare_windows(changed, tmp_path / "reference.fa.gz", tmp_path / "loci.tsv", tmp_path / "windows")
    rows = read_windows(tmp_path / "windows", "genomic").rows
    assert {*rows["split"]} == {"train", "test"}
