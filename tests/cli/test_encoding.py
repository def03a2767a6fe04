"""Files are UTF-8, whatever the encoding of the locale is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import yaml

from bigbird_dna.model.directory import save
from bigbird_dna.model.settings import PretrainingSettings
from tests.conftest import REPOSITORY
from tests.toys import random_dna, random_model, small_encoder, small_tokenizer

CLASSES = ["höch", "γ-δ", "低い"]
CHAIN = """
import locale, sys
from pathlib import Path
assert locale.getpreferredencoding(False) not in ("UTF-8", "utf-8"), locale.getpreferredencoding(False)
from tests.cli.command import invoke
invoke("audit-dataset", "x.csv", "-o", "audit")
invoke("finetune-sequences", "x.csv", "--config", "mine.yaml", "--pretrained", "base", "-o", "model",
       "--threads", 1, "--device", "cpu")
invoke("score-sequences", "model", "x.csv", "-o", "scores.tsv", "--device", "cpu")
invoke("explain", "model", "one.fa", "-o", "explained", "--views", 1)
"""


def test_names_of_any_language_in_a_locale_that_lacks_them(tmp_path: Path) -> None:
    tokenizer = small_tokenizer()
    encoder = small_encoder(tokenizer.vocabulary, position_encoding="rotary")
    save(
        tmp_path / "base",
        random_model(tokenizer, encoder, PretrainingSettings()),
        {},
        {},
        {},
    )
    rows = [
        f"é{number},{random_dna(60, number)},{CLASSES[number % 3]}\n"
        for number in range(60)
    ]
    (tmp_path / "x.csv").write_text(
        "name,sequence,label\n" + "".join(rows), encoding="utf-8"
    )
    (tmp_path / "one.fa").write_text(f">α-β\n{random_dna(60, 0)}\n", encoding="utf-8")
    training = {
        "steps": 4,
        "batch_size": 8,
        "evaluate_every": 2,
        "checkpoint_minutes": 0,
    }
    section = {
        "training": training,
        "baselines": {"cnn": False, "shuffled_labels": False},
    }
    (tmp_path / "mine.yaml").write_text(
        yaml.safe_dump({"sequences": section}), encoding="utf-8"
    )
    encoding = {
        "LC_ALL": "C",
        "LANG": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    environment = {
        **os.environ,
        **encoding,
        "PYTHONPATH": str(REPOSITORY),
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("PYTHONIOENCODING", None)
    command = [sys.executable, "-c", CHAIN]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    settings = json.loads((tmp_path / "model/config.json").read_text(encoding="utf-8"))[
        "settings"
    ]
    assert sorted(settings["outputs"]) == sorted(CLASSES)
    scores = pd.read_csv(
        tmp_path / "scores.tsv", sep="\t", comment="#", header=None, encoding="utf-8"
    )
    assert scores[0].tolist() == [f"é{number}" for number in range(60)] and set(
        scores[1]
    ) <= {*CLASSES}
    outputs = pd.read_csv(
        tmp_path / "explained/outputs.tsv", sep="\t", encoding="utf-8"
    )
    assert (
        sorted(outputs["output"]) == sorted(CLASSES)
        and outputs["prefix"].map(str.isascii).all()
    )
    for path in tmp_path.rglob("*"):
        if path.suffix in (".json", ".jsonl", ".html", ".tsv", ".svg", ".bed", ".yaml"):
            path.read_text(encoding="utf-8")
