"""The scan with known motifs on yeast's factors reaches what it reaches elsewhere."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bigbird_dna.config import load_config
from bigbird_dna.data.chromatin import prepare_data
from bigbird_dna.genome.chromatin.labels import PackedLabels
from bigbird_dna.genome.reference import prepare_reference
from bigbird_dna.metrics.auroc import auroc
from bigbird_dna.papers.comparators.fitting import TrackData, fit_comparator
from bigbird_dna.papers.comparators.motifs import jaspar_motifs, motifs_of_factor
from tests.conftest import REPOSITORY

KNOWN = {**{"RAP1": 0.95, "UME6": 0.93, "SKO1": 0.91, "CBF1": 0.90, "ABF1": 0.90, "REB1": 0.77, "FKH1": 0.77}}


@pytest.mark.slow
def test_the_scan_reaches_what_it_reaches_elsewhere(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyjaspar")
    known = jaspar_motifs("fungi")
    (tmp_path / "peaks").mkdir()
    for path in (shared_data / "yeast/peaks").glob("*_CX.bed.gz"):
        if motifs_of_factor(path.name.split("_")[0], known):
            (tmp_path / "peaks" / path.name).symlink_to(path)
    reference = tmp_path / "reference.fa.gz"
    prepare_reference(next((shared_data / "yeast").glob("*.fa.gz")), reference)
    changed = ("min_positives_train=20", "min_positives_heldout=1", f"tracks={tmp_path / 'peaks'}")
    config = load_config(
        REPOSITORY / "workflow/config/yeast_factors.yaml", [f"chromatin.data.{one}" for one in changed]
    )
    prepare_data(config, reference, tmp_path / "data", tracks=tmp_path / "peaks")
    data = TrackData(config, "motifs", tmp_path / "data", reference)
    fit_comparator(data, tmp_path / "out", tmp_path / "checkpoints", {"taxon": "fungi"})
    values = np.load(tmp_path / "out/predictions.npy").astype(float)
    labels = PackedLabels.load(tmp_path / "out/labels.npz").rows()
    targets = pd.read_csv(tmp_path / "out/tracks.tsv", sep="\t")["target"].str.upper()
    enough = labels.sum(axis=0) >= 20
    figures = {
        name: auroc(labels[:, one], values[:, one]).value for one, name in enumerate(targets) if enough[one]
    }
    assert {name: figures[name] for name in KNOWN} == pytest.approx(KNOWN, abs=0.03)
    assert 40 <= len(figures) <= 60
    assert float(np.median(list(figures.values()))) == pytest.approx(0.68, abs=0.03)
