"""`bigbird-dna benchmark reports`: `auc-report` beside scikit-learn's functions, track by track."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.timing import Call, Row, compare
from bigbird_dna import auc_report

TOLERANCE = 1e-9

Floats = NDArray[np.float64]


def run(*, rows: int = 20_000, tracks: int = 100, repeats: int = 5) -> list[Row]:
    """Time AUROC and average precision of random predictions, (rows, tracks), on torch's number of threads.

    `auc-report` also has confidence intervals, curves and a page. Both read the same files.
    """
    threads = torch.get_num_threads()
    with TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        labels = (rng.random((rows, tracks)) < 0.02).astype(np.uint8)
        scores = (rng.normal(size=labels.shape) + labels).astype(np.float32)
        paths = folder / "predictions.npy", folder / "labels.npy"
        np.save(paths[0], scores)
        np.save(paths[1], labels)

        def report() -> Floats:
            table = auc_report(*paths, folder / "report", threads=threads).tracks
            return table[["auroc", "auprc"]].to_numpy(np.float64)

        def scikit_learn() -> Floats:
            from sklearn.metrics import average_precision_score, roc_auc_score

            x = np.load(paths[0], mmap_mode="r")
            y = np.load(paths[1], mmap_mode="r")

            def of_track(track: int) -> tuple[Any, Any]:
                column = np.array(y[:, track]), np.array(x[:, track])
                return roc_auc_score(*column), average_precision_score(*column)

            with ThreadPoolExecutor(threads) as pool:
                return np.array(list(pool.map(of_track, range(tracks))))

        calls: dict[str, Call] = {"auc-report": report}
        calls["scikit-learn"] = scikit_learn
        if not np.allclose(report(), scikit_learn(), rtol=0, atol=TOLERANCE):
            raise RuntimeError("AUROC or AUPRC differ from scikit-learn's")
        work = f"AUROC and AUPRC, {rows:,} rows × {tracks:,} tracks"
        return compare(work, calls, repeats, amount=tracks, unit="tracks")
