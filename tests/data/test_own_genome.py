"""A genome that no table knows, in pieces, named otherwise in each file: from its FASTA to its data sets."""

import json
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from bigbird_dna.config import Config, load_config
from bigbird_dna.data.chromatin import prepare_data
from bigbird_dna.data.promoter_windows import prepare_windows, read_windows
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.assembly import open_assembly
from bigbird_dna.genome.chromatin.dataset import read_dataset
from bigbird_dna.genome.promoters import prepare_promoters
from bigbird_dna.genome.reference import Reference, prepare_reference
from bigbird_dna.genome.sequence import Interval
from bigbird_dna.tokens.encode import tokenize, train_tokenizer
from bigbird_dna.tokens.store import TokenStore
from tests.golden.messages import fails
from tests.tiny_run import SETTINGS as TINY
from tests.toys import random_dna

STARTS = {"NC_1.1": 3_000_000, "NC_2.1": 500_000, "NC_3.1": 0, "NC_9.1": 0}
SIZE = 20_000
CHR = {"NC_1.1": "chrI", "NC_2.1": "chrII", "NC_3.1": "chrIII"}
SETTINGS: dict[str, Any] = {
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
    "promoters": {"windows": {"upstream": 60, "downstream": 40, "negatives": 3, "min_tss_distance": 50}},
    "chromatin": {
        "data": {
            **{"tracks": "peaks", "bin": 50, "window": 200, "compare_window": None, "shift_bp": 0},
            **{"min_positives_train": 5, "min_positives_heldout": 1, "max_n": 0.2},
        }
    },
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a user: a FASTA of pieces with accessions, genes and peaks by chromosome, aliases."""
    home = tmp_path_factory.mktemp("own genome")
    genome, genes, peaks = "", "##gff-version 3\n", ""
    for number, (accession, start) in enumerate(STARTS.items()):
        place = f":{start + 1:,}-{start + SIZE:,}" if start else ""
        genome += f">{accession}{place}\n{random_dna(SIZE, number)}\n"
        for gene in range(300, SIZE - 300, 400) if accession in CHR else ():
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
        yaml.safe_dump({"results": str(home / "results"), "data_dir": str(home), **SETTINGS})
    )
    return home


@pytest.fixture(scope="module")
def config(home: Path) -> Config:
    return load_config(home / "run.yaml", [f"chromatin.data.tracks={home}/peaks"])


@pytest.fixture(scope="module")
def prepared(home: Path, config: Config) -> Path:
    assembly = open_assembly("custom", home / "aliases.tsv", "my-yeast")
    prepare_reference(home / "genome.fa", config.paths.reference, assembly)
    prepare_promoters(home / "genes.gff3", config.paths.reference, config.paths.promoters, assembly)
    return config.paths.reference


def test_coordinates_stay_and_losses_are_counted(home: Path, config: Config, prepared: Path) -> None:
    with Reference(prepared) as reference:
        assert reference.contigs == {name: start + SIZE for name, start in STARTS.items()}
        assert reference.fetch(Interval("NC_2.1", 500_000, 520_000)) == random_dna(SIZE, 1)
    counts = json.loads(config.paths.promoter_counts.read_text())
    assert counts["dropped_contigs"] == {"chrXX": 1}
    assert (counts["read"], counts["promoters"]) == (counts["promoters"] + 1, 3 * 49)


def test_n_costs_no_tokens_and_hardly_time(config: Config, prepared: Path) -> None:
    paths = config.paths
    train_tokenizer(config, prepared, paths.tokenizer)
    before = time.process_time()
    tokenize(config, prepared, paths.tokenizer, paths.tokens)
    took = time.process_time() - before
    stores = {split: TokenStore.open(paths.token_store(split)) for split in ("train", "valid", "test")}
    contigs = {split: store.info["contigs"] for split, store in stores.items()}
    assert contigs == {"train": ["NC_1.1"], "valid": ["NC_2.1"], "test": ["NC_3.1"]}
    assert 2 * SIZE - 200 <= stores["train"].info["bases"] <= 2 * SIZE + 200
    assert stores["train"].info["skipped_bases"] > 5_990_000
    assert took < 10  # 6 Mb of N twice


def test_every_promoter_has_its_genomic_negatives_among_the_n(config: Config, prepared: Path) -> None:
    prepare_windows(config, prepared, config.paths.promoters, config.paths.windows)
    counts = json.loads((config.paths.windows / "windows.json").read_text())
    assert counts["genomic negatives not found"] == 0
    windows = read_windows(config.paths.windows, "genomic")
    found = windows.rows[windows.labels == 0]
    assert found.groupby("split").size().to_dict() == {"train": 3 * 49, "valid": 49, "test": 49}
    with Reference(prepared) as reference:
        places = zip(found["contig"], found["start"], found["end"], strict=True)
        assert not any("N" in reference.fetch(Interval(*place)) for place in places)
    assert isinstance(found, pd.DataFrame) and not found.duplicated(["contig", "start", "strand"]).any()


def test_peaks_find_their_contigs(config: Config, prepared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare_data(config, prepared, config.paths.chromatin_data)
    said = capsys.readouterr().err
    assert "warning: 1 of 148 peaks (0.7%)" in said and "chrXX 1" in said
    data = read_dataset(config.paths.chromatin_data)
    assert data.info["assembly"] == "my-yeast"
    regions = {"valid": ["NC_2.1:1-520000"], "test": ["NC_3.1:1-20000"], "exclude": ["NC_9.1:1-20000"]}
    assert data.info["regions"] == regions


def test_without_the_alias_file_one_sentence_names_it(config: Config, prepared: Path) -> None:
    genome = config.genome.model_copy(update={"aliases": None})
    with fails(ConfigError):
        tokenize(config.model_copy(update={"genome": genome}), prepared, config.paths.tokenizer, Path("x"))
