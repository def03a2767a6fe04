"""Readers of a run's figures: logs, metrics, tables of reports."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bigbird_dna.data.predictions import of_split, read_bits
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.reporting.promoters import read_score_track
from bigbird_dna.reporting.summary import summarize
from bigbird_dna.reporting.tracks import read_published
from bigbird_dna.reporting.training import read_training_log
from tests.fuzz.reader import Reader
from tests.fuzz.readers.arrays import NAMES, TRACKS, table


def _log() -> bytes:
    lines: list[dict[str, object]] = [{"step": step, "loss": 5 / step, "rate": 1e-4} for step in range(1, 6)]
    lines.append({"step": 5, "evaluation": {"loss": 1.5, "accuracy": 0.3}})
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _metrics() -> bytes:
    return json.dumps(
        {
            "bits_per_base": 1.9,
            "masked_accuracy": 0.3,
            "split": "valid",
            "steps": 100,
            "tokens_seen": 1e6,
            "next_sentence_accuracy": 0.6,
        },
        indent=2,
    ).encode()


def _read_metrics(path: Path) -> None:
    summarize(pretraining=path, output=path.parent / "summary.tsv").encode()


_BITS = (
    b"split\tpredictor\tbits_per_base\tlow\thigh\tdifference\tdifference_low\tdifference_high\tnote\n"
    b"valid\tmodel\t1.91\t1.9\t1.92\t\t\t\t\n"
    b"test\tmodel\t1.92\t1.91\t1.93\t\t\t\t\n"
    b"test\tbigrams\t1.94\t1.93\t1.95\t-0.02\t-0.03\t-0.01\torder 2\n"
    b"test\tbigrams, told the rest\t1.9\t1.89\t1.91\t0.02\t0.01\t0.03\torder 2\n"
)


def _read_bits(path: Path) -> None:
    summarize(bits=path, output=path.parent / "summary.tsv").encode()
    write_tsv(path.parent / "bits.tsv", of_split(read_bits(path), "test"))


def _statistics() -> bytes:
    part = {"bases": 1000, "tokens": 200, "bases_per_token": 5.0, "unknown_rate": 0.0}
    return json.dumps(
        {"vocabulary": 4096, "genome": part, "regions": {"exon": part, "none": {"bases_per_token": None}}},
        indent=2,
    ).encode()


def _ends(name: str) -> list[str]:
    return [name, f"{name}_low", f"{name}_high"]


def _promoters() -> bytes:
    names = ("auroc", "auprc", "f1", "mcc", "auroc_minus_kmer", "auroc_minus_position")
    columns = [part for name in names for part in _ends(name)]
    header = ["negative_set", "stratum", "model", "n", "positives", *columns, "note"]
    return table(
        header,
        *(
            ["gc", stratum, model, 24, 12, *[0.5] * 12, *[""] * 6, ""]
            for stratum in ("all", "noncoding")
            for model in ("model", "k-mer", "position", "control")
        ),
    )


def _tracks() -> bytes:
    header = [
        "track",
        "group",
        "positives",
        "negatives",
        *_ends("auroc"),
        "auprc",
        "note",
        "prevalence",
        "auroc_kmers",
        "auprc_kmers",
        *_ends("delta_kmers"),
    ]
    return table(
        header,
        *([name, "DNase", 3, 21, 0.9, 0.8, 0.95, 0.5, "", 0.1, 0.7, 0.3, 0.2, 0.1, 0.3] for name in NAMES),
    )


def _groups() -> bytes:
    header = ["group", "tracks", "median_auroc", "mean_auroc", "median_auroc_kmers", "median_delta_kmers"]
    return table(header, ["DNase", 4, 0.9, 0.88, 0.8, 0.1], ["all", 5, 0.9, 0.88, "", ""])


def _variants() -> bytes:
    header = ["subset", "variants", "with_effect", *_ends("auroc"), "auroc_log_odds", "right_sign"]
    return table(
        header, ["all", 50, 25, 0.8, 0.7, 0.9, 0.8, 0.75], ["held-out", 9, 4, 0.8, 0.7, 0.9, 0.8, ""]
    )


def _summed(name: str) -> Callable[[Path], object]:
    def read(path: Path) -> None:
        sources: Any = {name: path}
        summarize(**sources, output=path.parent / "summary.tsv").encode()

    return read


_SCORE_TRACK = (
    b"##bigbird-dna\n#contig\tstart\tend\tname\tscore\tstrand\tprobability\n"
    b"chr1\t0\t300\tw1\t12.5\t+\t0.1\nchr1\t0\t300\tw1\tNA\t-\t0.1\nchr2\t50\t350\tw2\t900\t+\t0.9\n"
)


_PUBLISHED = table(["track", "published_auroc"], *([name, 0.9] for name in NAMES))


READERS = [
    Reader(
        "published",
        ".tsv",
        lambda path: read_published(path, NAMES),
        lambda: [_PUBLISHED, table(["index", "auc"], *([row, 0.5] for row in range(TRACKS)))],
    ),
    Reader("score-track", ".bed", read_score_track, lambda: [_SCORE_TRACK]),
    Reader("training-log", ".jsonl", read_training_log, lambda: [_log()]),
    Reader("metrics", ".json", _read_metrics, lambda: [_metrics()]),
    Reader(
        "bits-table", ".tsv", _read_bits, lambda: [_BITS], tokens=(b"model", b"test", b"-1", b"nan", b"1e999")
    ),
    Reader("statistics", ".json", _summed("statistics"), lambda: [_statistics()]),
    Reader("promoters-table", ".tsv", _summed("promoters"), lambda: [_promoters()]),
    Reader("groups-table", ".tsv", _summed("groups"), lambda: [_groups()]),
    Reader("leads-table", ".tsv", _summed("tracks"), lambda: [_tracks()]),
    Reader("variants-table", ".tsv", _summed("variants"), lambda: [_variants()]),
]
