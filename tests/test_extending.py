"""What can be added, as the documentation shows it: a file in an empty folder, which runs."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bigbird_dna
from tests.cli.command import words_of_command
from tests.conftest import REPOSITORY
from tests.docs.blocks import blocks
from tests.toys import random_dna

PAGE = "docs/extending.md"
COMMAND = ("-m", "bigbird_dna.cli.main")


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A folder with the files of the page, each by the name that the text before it ends with."""
    text = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    names = re.findall(r"`(lab_\w+\.py)`:\n\n```py\n", text)
    assert len(names) == 5
    for name, block in zip(names, blocks(PAGE, "py"), strict=True):
        (tmp_path / name).write_text(block.text)
    return tmp_path


def python(lab: Path, *words: object) -> str:
    """What a process of its own prints that finds modules in the folder `lab`, where it runs."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(lab), str(REPOSITORY)])
    }
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=lab,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_mechanism(lab: Path) -> None:
    """In a copy of the package, as its folder is what finds it."""
    copy = lab / "bigbird_dna"
    subprocess.run(["cp", "-r", REPOSITORY / "bigbird_dna", copy], check=True)
    shutil.move(lab / "lab_mechanism.py", copy / "attention/mechanisms/lab.py")
    source = (
        "import torch\n"
        "from bigbird_dna.config.network import EncoderConfig\n"
        "from bigbird_dna.model.encoder import Encoder\n"
        "options = {'attention': 'decaying', 'attention_options': {'reach': 20}}\n"
        "config = EncoderConfig(vocabulary=8, layers=2, heads=2, hidden=16, **options)\n"
        "print(*Encoder(config).eval()(torch.ones(1, 30, dtype=torch.long)).shape)\n"
    )
    assert python(lab, "-c", source) == "1 30 16\n"


def test_a_task(lab: Path) -> None:
    sequences = [random_dna(60, seed) for seed in range(200)]
    table = "".join(
        f"{sequence}\t{sequence.count('G') / 30}\n" for sequence in sequences
    )
    (lab / "activity.tsv").write_text(table)
    source = blocks(PAGE, "python")[0].text
    assert "steps=500" in source
    (lab / "use.py").write_text(source.replace("steps=500", "steps=120"))
    python(lab, "use.py")
    values = [sequence.count("G") / 30 for sequence in sequences[160:]]
    mean = sum(values) / len(values)
    spread = sum((value - mean) ** 2 for value in values) / len(values)
    assert json.loads((lab / "model/metrics.json").read_text())["loss"] < spread / 2


def test_a_format(lab: Path) -> None:
    example = REPOSITORY / "resources/examples/yeast_VII_20kb.fa.gz"
    python(lab, "lab_format.py", "yeast-promoters", example, "sites.gff3")
    bigbird_dna.score_promoters("yeast-promoters", example, lab / "scores.tsv")
    scores = pd.read_csv(lab / "scores.tsv", sep="\t", comment="#")
    expected = scores[scores["score"] >= 0.5]
    columns = ["contig", "source", "type", "start", "end", "score", "strand"]
    columns += ["phase", "attributes"]
    written = pd.read_csv(lab / "sites.gff3", sep="\t", comment="#", names=columns)
    assert len(expected) > 2
    assert (written["start"] - 1).tolist() == expected["start"].tolist()
    assert written["end"].tolist() == expected["end"].tolist()
    assert written["strand"].tolist() == expected["strand"].tolist()
    np.testing.assert_allclose(written["score"], expected["score"], atol=6e-5)
    tss = written["attributes"].str.removeprefix("tss=").astype(int) - 1
    assert tss.tolist() == expected["tss"].astype(int).tolist()


@pytest.mark.slow
def test_a_baseline_and_an_experiment(lab: Path, tiny_config: Path) -> None:
    shutil.copytree(tiny_config.parent, lab, dirs_exist_ok=True)
    config = tiny_config.read_text().replace(str(tiny_config.parent), str(lab))
    (lab / "run.yaml").write_text(config)
    words = ("experiment run", "lab_experiment", "run.yaml", "-o", "report")
    python(lab, *COMMAND, *words_of_command(*words))
    _, *rows = (lab / "report/signals.tsv").read_text().splitlines()
    table = (row.split("\t") for row in rows)
    found = {name: float(auroc) for name, auroc in table}
    assert (
        list(found) == ["gc", "tata"] and found["tata"] > 0.7
    )  # each promoter of the run has TATAAA
