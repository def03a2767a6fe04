"""Facts of a model directory, for `model show` and the README of an exported checkpoint."""

from collections.abc import Mapping
from typing import Any

from bigbird_dna.calibration.call_precision import FILE as CALLS
from bigbird_dna.calibration.call_precision import read_call_precision
from bigbird_dna.disk.json_files import read_object
from bigbird_dna.errors import shortened
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.model import (
    MADE_FOR,
    METRICS,
    LoadedModel,
    calibration_file,
    calibration_of,
)
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.start_sites import LoadedStartSiteModel
from bigbird_dna.model.weights import RECORD


def describe_model(model: LoadedModel) -> dict[str, str]:
    """Return facts of a model loaded from a directory, as texts of one line by label.

    Task, encoder, window with the position of the TSS, tracks, training data and calibrations. Values of
    `provenance.json` that do not have the expected form are left out.
    """
    assert model.path is not None
    config = model.config
    facts = {
        "task": MADE_FOR[model.task],
        "encoder": f"{config.layers:,} layers, width {config.hidden:,}, {config.heads:,} heads, "
        f"{config.attention} attention, {config.position_encoding} positions, at most "
        f"{config.max_length:,} tokens",
        "parameters": f"{model.parameters:,}",
        "vocabulary": f"{model.tokenizer.vocabulary:,} tokens",
        "weights": f"SHA-256 {model.sha256}",
    }
    if isinstance(model, LoadedPromoterModel):
        upstream, window = model.settings.upstream, model.settings.window
        facts["window"] = f"{window:,} bp, the TSS after {upstream:,} bp"
        if model.settings.negative_set:
            facts["negative set"] = model.settings.negative_set

    if isinstance(model, LoadedStartSiteModel):
        facts["window"] = (
            f"{model.settings.window:,} bp, predicts start sites at every base, on both strands"
        )

    if isinstance(model, LoadedChromatinModel):
        window, bin = model.settings.window, model.settings.bin
        facts["window"] = f"{window:,} bp, predicts the central bin of {bin:,} bp"
        facts["tracks"] = _text([track.name for track in model.tracks])
        facts["networks"] = f"{model.settings.members:,}"

    record = model.path / RECORD
    provenance = read_object(record) if record.is_file() else {}
    genome = provenance.get("configuration", {}).get("genome", {})
    facts_of_training = {
        "genome": genome.get("name") or genome.get("assembly"),
        "pretrained on": provenance.get("contigs"),
        "held out for validation": genome.get("valid"),
        "held out for testing": genome.get("test"),
        "excluded": genome.get("exclude"),
        "promoters": provenance.get("promoters"),
        "fine-tuned from weights": provenance.get("pretrained_sha256"),
        "held out, but in pretraining": provenance.get(
            "held_out_contigs_seen_in_pretraining"
        ),
        "software": provenance.get("software"),
    }
    if calibration_file(model) is not None:
        facts_of_training["calibrated on"] = calibration_of(model).fitted_on

    if (model.path / CALLS).is_file():
        calls = read_call_precision(model.path / CALLS, model.sha256)
        facts_of_training["calls calibrated on"] = calls.fitted_on

    for label, value in facts_of_training.items():
        if value:
            facts[label] = _text(value)

    return facts


def read_metrics(model: LoadedModel) -> dict[str, str]:
    """Return the metrics of a model directory as texts, by split and name."""
    assert model.path is not None
    path = model.path / METRICS
    return _flatten(read_object(path)) if path.is_file() else {}


def _flatten(values: Mapping[str, Any], above: str = "") -> dict[str, str]:
    rows: dict[str, str] = {}
    for key, value in values.items():
        name = f"{above} {key}".strip().replace("_", " ")
        if isinstance(value, dict):
            rows |= _flatten(value, name)
        elif value is not None and not key.endswith(("_low", "_high")):
            rows[name] = _text(value)
            low, high = values.get(f"{key}_low"), values.get(f"{key}_high")
            if low is not None and high is not None:
                rows[name] += f" ({_text(low)} to {_text(high)})"
    return rows


def _text(value: Any) -> str:
    """Return a value, the items of a list, or the keys and values of a mapping, on one line."""
    if isinstance(value, Mapping):
        value = [
            f"{key.replace('_', ' ')} {_text(item)}" for key, item in value.items()
        ]

    if isinstance(value, list | tuple):
        return shortened(", ".join(map(_text, value)), 300)

    if isinstance(value, float):
        return f"{value:.4g}"

    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"

    return shortened(" ".join(str(value).split()), 100)
