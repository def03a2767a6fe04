"""Rules of similarity: which jobs `splits` asks for, and of which data set."""

import re
from pathlib import Path

from tests.workflow.dry_runs import dry_run, jobs, overlay


def test_the_jobs_that_the_section_splits_asks_for(tmp_path: Path) -> None:
    for name in ("without", "both"):
        (tmp_path / name).mkdir()
    pieces = {"chromatin": {"shards": {"data": 2}}}
    before = jobs(dry_run(tmp_path / "without", *overlay(tmp_path / "without", pieces)))
    both = {**pieces, "splits": {"max_train_test_similarity": 0.5, "similarity_strata": [0.3, 0.5]}}
    text = dry_run(tmp_path / "both", *overlay(tmp_path / "both", both))
    more = {"nearest_promoters": 3, "promoter_similarity_report": 1, "nearest_bins": 1}
    assert jobs(text) == before | more | {"bin_similarity_report": 1, "drop_similar_bins": 1}
    home = "results/demo/chromatin"
    assert f"prepare filter-bins {home}/labelled --reference" in text
    assert f"--similarity 0.5 -o {home}/data >" in text
    assert re.search(f"merge-shards {home}/labelled.piece-1-of-2 .* -o {home}/labelled >", text)
    assert text.count("--similarity-bins=0.3,0.5 ") == 2
    assert "--predictions=genomic/nearest=results/demo/promoters/nearest-genomic.parquet" in text
    for name in ("similarity.svg", "similarity.tsv", "bin_similarity.tsv"):
        assert f" results/demo/report/{name} " in text.split("bigbird-dna report run")[1]
