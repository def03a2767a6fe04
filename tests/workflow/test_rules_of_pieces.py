"""Rules in pieces: which jobs there are, and that a whole run ends in the same files."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import tiny_run
from tests.conftest import REPOSITORY
from tests.workflow.dry_runs import BIN, dry_run, jobs, overlay

PIECES: dict[str, Any] = {
    "example_scan": {"shards": 2},
    "chromatin": {"shards": {"data": 3, "predictions": 4, "variants": 5}},
}
# Jobs of the demo that are divided: of how many kinds of output, and what puts their pieces together.
DIVIDED = {
    "score_promoters": (2, 2, "merge_promoter_scores"),
    "chromatin_data": (1, 3, "merge_chromatin_data"),
    "chromatin_predictions": (2, 4, "merge_chromatin_predictions"),
    "score_variants": (1, 5, "merge_variants"),
}


def test_the_jobs_of_a_run_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "pieces").mkdir()
    whole = dry_run(tmp_path / "whole")
    text = dry_run(tmp_path / "pieces", *overlay(tmp_path / "pieces", PIECES))
    expected = jobs(whole)
    assert "piece" not in " ".join(expected)
    for name, (outputs, pieces, merge) in DIVIDED.items():
        assert expected.pop(name) == outputs
        expected |= {f"{name}_piece": outputs * pieces, merge: outputs}
        assert f"--shard={pieces}/{pieces}" in text
    assert jobs(text) == expected
    assert "results/demo/scores/promoters.tsv.piece-2-of-2 --format tsv --stride 50" in text
    assert "-o results/demo/chromatin/data.piece-1-of-3 >" in text
    variants = [f"results/demo/chromatin/variants.vcf.gz.piece-{number}-of-5" for number in range(1, 6)]
    assert f"merge-shards {' '.join(variants)} -o results/demo/chromatin/variants.vcf.gz" in text
    assert all(f"Would remove temporary output {path}" in text for path in variants)
    # Pieces ask for what the whole job does.
    for name in ("score_promoters", "chromatin_predictions", "score_variants"):
        asked = [
            next(line for line in part.split(f"rule {rule}:")[1].splitlines() if "resources:" in line)
            for part, rule in ((whole, name), (text, f"{name}_piece"))
        ]
        assert asked[0] == asked[1] and "gpu=" in asked[0]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_whole_run_in_pieces_ends_in_the_same_files(tmp_path: Path) -> None:
    found = []
    for name, changed in (("whole", {}), ("pieces", PIECES)):
        home = tmp_path / name
        home.mkdir()
        (home / "run.yaml").write_text(yaml.safe_dump({**tiny_run.WHOLE, "results": "out", "num_gpus": 1}))
        (home / "changed.yaml").write_text(yaml.safe_dump(changed))
        command = [BIN / "snakemake", "--snakefile", REPOSITORY / "Snakefile", "--cores", "2"]
        command += ["--configfile", "run.yaml", "changed.yaml"]
        outcome = subprocess.run(command, cwd=home, capture_output=True, text=True)
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr
        out = home / "out"
        files = [*(out / "scores").iterdir(), *(out / "chromatin").rglob("*"), out / "report/summary.txt"]
        kept = [path for path in files if path.is_file() and not path.name.startswith(".")]
        found.append({str(path.relative_to(out)): path.read_bytes() for path in kept})
    assert found[0].keys() == found[1].keys()
    assert {"scores/promoters.tsv", "chromatin/data/labels.npz", "chromatin/variants.vcf.gz"} < found[
        0
    ].keys()
    assert [name for name in found[0] if found[0][name] != found[1][name]] == []
