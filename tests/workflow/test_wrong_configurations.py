"""A wrong configuration is one line, before any job: the demo's, a genome's, one of sequences."""

from pathlib import Path
from typing import Any

import pytest

from tests.golden.messages import message
from tests.workflow.dry_runs import overlay, own_genome, own_sequences, refused, snakemake

PERMUTED = {"windows": {"negative_sets": ["permuted"]}}
YEAST: dict[str, Any] = {
    "genome": {"assembly": "sacCer3", "reference": "sacCer3.reference"},
    "promoters": {"source": "sacCer3.promoters"},
}
RANDOM = {"initializations": ["random", "random_long"]}
DEEPSEA = {"tracks": "deepsea"}
DEMO: dict[str, tuple[dict[str, Any], str]] = {
    "unknown-key": ({"encoder": {"laers": 4}}, "changed.yaml: line 2"),
    "key-of-a-section-below": ({"promoters": {"steps": 3}}, "changed.yaml: line 2"),
    "wrong-type": ({"encoder": {"layers": "four"}}, "encoder.layers"),
    "no-test-contig": ({"genome": {"test": []}}, "genome.test"),
    "simulated-region": ({"genome": {"test": ["demo6:1-9"]}}, "'demo6:1-9'"),
    "no-scoring-model": (
        {"promoters": {**PERMUTED, "shuffled_label_control": None}},
        "example_scan.negative_set: 'genomic'",
    ),
    "no-control": ({"promoters": PERMUTED}, "control 'genomic'"),
    "bundle-is-published": ({"chromatin": {"data": DEEPSEA}}, "negative_fraction"),
    "bundle-of-another-genome": ({"chromatin": {"data": DEEPSEA | {"negative_fraction": 0.0}}}, "GRCh37"),
    "no-local-data": (YEAST | {"data_dir": "nowhere"}, "nowhere"),
    "study-set": (
        {"pretraining_study": {"seeds": [1]}, "promoters": {**PERMUTED, "shuffled_label_control": None}}
        | {"example_scan": {"negative_set": "permuted"}},
        "pretraining_study.negative_set: 'genomic'",
    ),
    "study-longer": (
        {"pretraining_study": RANDOM | {"random_long_steps": 300}},
        "pretraining_study.random_long_steps: 300",
    ),
    "study-no-longer": ({"pretraining_study": RANDOM}, "study"),
    "study-task": (
        {"pretraining_study": {"tasks": ["chromatin"]}, "chromatin": {"data": {"tracks": None}}},
        "pretraining_study.tasks",
    ),
    "study-seeds": ({"pretraining_study": {"seeds": [1, 1]}}, "seeds"),
    "study-shares": ({"pretraining_study": {"train_fractions": [0.2, 0.20000001]}}, "train_fractions"),
    "no-tracks": ({"chromatin": {"data": {"tracks": "my.tsv"}}}, "chromatin.data.tracks: 'my.tsv'"),
    "no-blacklist": ({"chromatin": {"data": {"blacklist": "x.bed"}}}, "chromatin.data.blacklist: 'x.bed'"),
    "no-variants": ({"data_dir": "data", "chromatin": {"variants": "x.vcf"}}, "chromatin.variants: 'x.vcf'"),
    "template": ({"results": "r{wildcards.y}"}, "'r{wildcards.y}'"),
}
NO_REGION: dict[str, Any] = {"genome": {"valid": []}}
GENOME: dict[str, tuple[dict[str, Any], str]] = {
    "nothing-to-do": ({"chromatin": {"data": {"tracks": None}}}, "chromatin.data.tracks"),
    "pretraining-contig": (
        NO_REGION | {"chromatin": {"model": {"initial": "pretrained"}}},
        "chromatin.data.valid_regions",
    ),
    "no-test-region": ({"genome": {"test": []}}, "chromatin.data.test_regions"),
    "promoter-contig": (
        NO_REGION | {"promoters": {"source": "my.sga"}, "chromatin": {"data": {"valid_regions": ["22:5-"]}}},
        "genome.valid",
    ),
    "no-aliases": ({"genome": {"aliases": "gone.tsv"}}, "genome.aliases: 'gone.tsv'"),
    "no-name": ({"genome": {"assembly": "custom"}}, "genome.name"),
    "no-file": ({"genome": {"reference": "gone.fa"}}, "genome.reference: 'gone.fa'"),
}
SEQUENCES: dict[str, tuple[dict[str, Any], str]] = {
    "no-positives": ({"promoters": {"sequences": {"positives": "gone.fa"}}}, "positives: 'gone.fa'"),
    "no-genome": ({"promoters": {"model": {"initial": "pretrained"}}}, "genome.reference"),
}


@pytest.mark.parametrize("name", [*DEMO, *GENOME, *SEQUENCES])
def test_a_fault_is_one_line(tmp_path: Path, name: str) -> None:
    changed, named = {**DEMO, **GENOME, **SEQUENCES}[name]
    if name in DEMO:
        arguments = overlay(tmp_path, changed)
    else:
        arguments = (own_genome if name in GENOME else own_sequences)(tmp_path, **changed)
    message(refused(snakemake(tmp_path, "--dry-run", *arguments)), named)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("seed: 1\nseed: 2", "line 2, column 1"),
        ("__use_yte__: true\ngenome: {valid: [demo5], test: [demo6]}", "'__use_yte__'"),
        ("seed: 1:30", "line 1, column 7"),
    ],
    ids=["twice", "template", "sixties"],
)
def test_a_file_that_snakemake_reads_otherwise_is_refused(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    message(refused(snakemake(tmp_path, "--dry-run", "--configfile", path)), path, named)
