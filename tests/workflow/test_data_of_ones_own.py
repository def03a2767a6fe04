"""What the workflow would run for data of the user's own, and what it says to wrong ones."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import yaml

from tests.conftest import REPOSITORY
from tests.workflow.dry_runs import COMMON, dry_run, jobs, own_genome, own_sequences

# Sequences without a genome: nothing is simulated, fetched, tokenised or pretrained.
SEQUENCES = {
    "all": 1,
    "report_plot_attention": 1,
    "finetune_promoter": 2,
    "report_plot_loss": 1,
    "train_baseline_promoter": 2,
    "evaluate_promoters": 1,
    "prepare_sequences": 1,
    "report_run": 1,
    "score_promoters": 1,
    "stage_config": 5,
    "report_summary": 1,
    "prepare_tokenizer": 1,
}


def test_promoters_as_sequences_without_a_genome(tmp_path: Path) -> None:
    text = dry_run(tmp_path, *own_sequences(tmp_path))
    assert jobs(text) == SEQUENCES
    data = "results/sequences/promoters"
    assert (
        f"prepare sequences '{tmp_path}/local data/promoters.fa'  "
        "--negatives-per-positive=4 --similarity=0.2 --seed=1"
        f" --negative-set=substituted --output {data}"
    ) in text
    assert f"--reference {data}/training.fa.gz -o results/sequences/tokens/tokenizer.model" in text
    assert text.count(f"--windows {data} --reference {data}/sequences.fa.gz") == 4
    assert f"models/promoter-substituted {data}/test.fa.gz -o" in text and "--strand=+" in text
    (summary,) = re.findall("bigbird-dna report summary .*", text)
    assert "--statistics" not in summary and "--pretraining" not in summary
    for missing in ("simulated", "bedgraph", "report plot-scores", "--pretrained"):
        assert missing not in text


def test_sequences_with_negatives_splits_and_a_genome_to_pretrain_on(tmp_path: Path) -> None:
    sequences = {"negatives": "others.fa", "splits": "splits.tsv", "length": 80, "min_shared_kmers": 0.5}
    text = dry_run(
        tmp_path,
        *own_sequences(
            tmp_path,
            genome={"reference": "genome.fa", "valid": ["a"]},
            promoters={
                "sequences": sequences,
                "windows": {"upstream": 60, "negative_sets": ["user"]},
                "model": {"initial": "pretrained"},
            },
        ),
    )
    pretraining = {"prepare_reference": 1, "prepare_tokens": 1, "prepare_token_stats": 1, "pretrain": 1}
    pretraining |= {"train_baseline_language": 1, "evaluate_pretraining": 1}
    pretraining |= {"report_pretraining": 1, "stage_config": 6}
    # Sequences that are trimmed around their middle are not aligned at the start site.
    assert jobs(text) == SEQUENCES | pretraining | {"train_baseline_promoter": 1}
    assert "--baseline k-mer" in text and "position" not in " ".join(
        re.findall("evaluate promoters .*", text)
    )
    local = f"'{tmp_path}/local data"
    assert (
        f"prepare sequences {local}/promoters.fa' '--negatives={tmp_path}/local data/others.fa'"
        f" '--splits={tmp_path}/local data/splits.tsv' --length=80 --upstream=60 --negatives-per-positive=4"
        " --similarity=0.5 --seed=1 --negative-set=user --output"
    ) in text
    assert "--reference results/sequences/genome/reference.fa.gz -o results/sequences/tokens/tok" in text
    assert text.count("--pretrained results/sequences/models/pretrained") == 2


def test_promoters_of_the_user_s_own(tmp_path: Path) -> None:
    changes = {"promoters": {"source": "my.sga"}, "chromatin": {"data": {"tracks": None}}}
    text = dry_run(tmp_path, *own_genome(tmp_path, **changes))
    assert jobs(text) == COMMON
    assert f"prepare promoters '{tmp_path}/local data/my.sga' " in text
    assert "--promoters results/chr22/genome/promoters.tsv" in text
    # The example of scoring is the start of the test region.
    assert "reference.fa.gz 22:20,500,001- --exclude=22:19,000,001-20,000,000 --assembly GRCh37" in text


def test_a_genome_that_no_table_knows(tmp_path: Path) -> None:
    """The minimal configuration with an alias file: every command that resolves names of contigs has it."""
    local = tmp_path / "my data"
    (local / "peaks").mkdir(parents=True)
    for name in ("genome.fa.gz", "genes.gff3", "names.tsv", "x.vcf"):
        (local / name).touch()
    path = tmp_path / "changed.yaml"
    genome = {"aliases": "names.tsv", "test": ["chr*"], "exclude": ["chrM"]}
    changes: dict[str, Any] = {"data_dir": str(local), "genome": genome}
    changes["chromatin"] = {"variants": "x.vcf", "data": {"tracks": "peaks", "compare_window": None}}
    path.write_text(yaml.safe_dump(changes))
    minimal = REPOSITORY / "workflow/config/minimal.yaml"
    text = dry_run(tmp_path, "--configfile", minimal, path)
    commands = dict(
        re.findall(
            r"^Shell command: .*?bigbird-dna ((?:(?:prepare|train|evaluate|report|model) )?[a-z-]+) (.*)$",
            text,
            re.MULTILINE,
        )
    )
    assert text.count("my-genome") == 7  # in the files of the stages that read the genome's section
    aliases = f"--aliases '{local}/names.tsv'"
    named = {name for name, words in commands.items() if aliases in words}
    assert named == {"prepare reference", "prepare promoters", "prepare contig", "score-variants"}
    for name in named - {"score-variants"}:
        assert f"--assembly custom {aliases}" in commands[name]
    assert "reference.fa.gz 'chr*' --exclude=chrM --exclude=chr2 " in commands["prepare contig"]
    override = f"""--set 'genome.aliases="{local}/names.tsv"'"""
    assert {name for name, words in commands.items() if override in words} == {
        *(
            "prepare tokenizer",
            "prepare tokens",
            "prepare token-stats",
            "prepare promoter-windows",
            "prepare chromatin",
        )
    }
    inputs = re.findall(r"^    input: (.*)$", text, re.MULTILINE)
    assert sum(f"{local}/names.tsv" in line for line in inputs) == len(named) + 5
    # Without the file nobody speaks of it.
    path.write_text(yaml.safe_dump({"data_dir": str(local)}))
    text = dry_run(tmp_path, "--configfile", minimal, path)
    assert "aliases" not in re.sub('"aliases": null', "", text)
    assert jobs(text) == COMMON | {"finetune_promoter": 2, "train_baseline_promoter": 2}


def test_the_report_has_the_name_of_a_genome_of_one_s_own() -> None:
    template = jinja2.Template((REPOSITORY / "workflow/report/workflow.rst").read_text())
    for genome, name in (
        ({"assembly": "custom", "name": "my.yeast_2"}, "my.yeast_2"),
        ({"assembly": "GRCh37", "name": None}, "GRCh37"),
        ({}, "demo"),
    ):
        text = template.render(snakemake=SimpleNamespace(config={"genome": genome}))
        assert f"pretrained on **{name}**" in text
