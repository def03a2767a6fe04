"""Card of a published model: description, origin, metrics and limits.

The content is read from the model directory, except description, license and commands, which are given by the
publisher.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bigbird_dna.calibration.call_precision import (
    FILE,
    CallPrecision,
    read_call_precision,
)
from bigbird_dna.config import EncoderConfig
from bigbird_dna.config.mechanisms import OF_PATTERNS
from bigbird_dna.disk.json_files import read_mapping
from bigbird_dna.errors import shortened
from bigbird_dna.genome.sources import load_sources
from bigbird_dna.model.chromatin import LoadedChromatinModel
from bigbird_dna.model.directory import WEIGHTS
from bigbird_dna.model.model import (
    MADE_FOR,
    METRICS,
    LoadedModel,
    calibration_file,
    calibration_of,
)
from bigbird_dna.model.promoter import LoadedPromoterModel
from bigbird_dna.model.weights import stored_tensors

_SPECIAL = re.compile(r"([\\`*_<>\[\]|#&~])")
_SPLITS = {"train": "training", "valid": "validation", "test": "test"}
_LONGEST_LIST = 20
_MOST_FIGURES = 200
_STAGES = {
    "pretraining": "pretrain",
    "promoter": "finetune-promoter",
    "chromatin": "finetune-chromatin",
}
START_SITES = (
    "start sites"  # a chromatin model with a track of start sites on each strand
)
_LIMITS = {
    "pretraining": (
        "It predicts masked tokens from their context, but no genomic feature by itself: fine-tune it, "
        "or use its embeddings.",
        "Bits per base depend on the tokenizer and on the masked tokens: compare them on the same "
        "masked bases only.",
    ),
    "promoter": (
        "Its probabilities are calibrated for the prevalence of promoters in its training windows. In a "
        "genome, where promoters are rare, many high scores are false positives.",
        "The metrics depend on the negatives from which promoters are distinguished.",
    ),
    "chromatin": (
        "It predicts only the assays and cell types of its tracks.",
        "Its effect of a variant is a prediction, not a measurement.",
    ),
    START_SITES: (
        "Start sites are rare, and many of its high scores are false positives: `call-promoters` states the "
        "expected precision of each call.",
        "Expected precision applies to genomes with a density of start sites like that of the validation "
        "contigs. Annotated start sites are incomplete, and a call at an unknown one counts as false.",
        "Its effect of a variant is a prediction, not a measurement.",
    ),
}


class Publication(NamedTuple):
    """Information given by the publisher of a model; single lines of text."""

    name: str
    description: str
    license: str
    commands: Sequence[str] = ()  # commands that reproduce the metrics


def model_card(
    model: LoadedModel, publication: Publication, use: Sequence[str] | None = None
) -> str:
    """Return the card of a model loaded from a directory, as Markdown.

    `use` are the paragraphs on its use; None: that of a published model.
    """
    assert model.path is not None
    files = [model.path / name for name in ("provenance.json", METRICS)]
    provenance, metrics = (
        read_mapping(path) if path.is_file() else {} for path in files
    )
    name = publication.name
    if use is None:
        commands = [f"fetch-model {name}", *_commands(model, f"models/{name}")]
        use = [
            "```console\n"
            + "\n".join(f"$ bigbird-dna {command}" for command in commands)
            + "\n```",
            f'```python\nimport bigbird_dna\n\nmodel = bigbird_dna.load("models/{name}")\n'
            f"{_example(model)}\n```",
        ]
    parts = [
        f"# {_text(name)}",
        _text(publication.description),
        "## Overview",
        _table(("", ""), _identity(model, publication, provenance)),
        "## Use",
        *use,
        "## Training",
        _bullets(_training(model, provenance, metrics)),
        "## Metrics",
        *_figures(metrics, provenance),
        "### How to reproduce them",
        *_recipe(model, publication.commands, metrics),
        "## Limits",
        _bullets(_limits(model)),
        "## License",
        *_license(publication.license, provenance),
    ]
    return "\n\n".join(parts) + "\n"


def _identity(
    model: LoadedModel, publication: Publication, provenance: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    config = model.config
    is_dense = _kind(model) == START_SITES
    yield (
        "Task",
        "promoters: transcription start sites along a genome"
        if is_dense
        else MADE_FOR[model.task],
    )
    yield (
        "Encoder",
        f"{config.layers:,} layers, width {config.hidden:,}, {config.heads:,} heads; at most "
        f"{config.max_length:,} tokens; {config.position_encoding} positions; "
        f"{_text(config.attention)} attention {_attention(config)}",
    )
    if isinstance(model, LoadedPromoterModel):
        settings = model.settings
        yield (
            "Input",
            f"{settings.window:,} bp, {settings.upstream:,} of them before the TSS",
        )
    if isinstance(model, LoadedChromatinModel):
        window, bin = model.settings.window, model.settings.bin
        if is_dense:
            yield (
                "Input",
                f"{window:,} bp, predicts start sites in bins of {bin:,} bp, on both strands",
            )
        else:
            yield "Input", f"{window:,} bp, predicts the central {bin:,} bp"
        yield (
            "Tracks",
            f"{len(model.tracks):,}: {_list([track.name for track in model.tracks])}",
        )
    yield "Tokenizer", f"{model.tokenizer.vocabulary:,} tokens"
    yield "Parameters", f"{model.parameters:,}"
    assert model.path is not None
    weights = model.path / WEIGHTS
    kinds = sorted({tensor.type for tensor in stored_tensors(weights).values()})
    bits = " and ".join(
        kind.replace("BF", "bfloat").replace("F", "float") for kind in kinds
    )
    yield (
        "Weights",
        f"{weights.stat().st_size / 1e6:,.2f} MB in {bits}, SHA-256 `{model.sha256}`",
    )
    software = provenance.get("software")
    if isinstance(software, dict):
        used = [
            f"{key} {software[key]}"
            for key in ("bigbird_dna", "torch")
            if key in software
        ]
        yield "Made with", _text(", ".join(used))
    yield "License", _text(publication.license)


def _attention(config: EncoderConfig) -> str:
    if config.attention in OF_PATTERNS:
        return f"in blocks of {config.block_size:,} tokens"
    options = ", ".join(
        f"{key} {value}" for key, value in config.attention_options.items()
    )
    return f"({_text(options)})" if options else ""


def _kind(model: LoadedModel) -> str:
    is_dense = isinstance(model, LoadedChromatinModel) and model.predicts_tss
    return START_SITES if is_dense else model.task


def _commands(model: LoadedModel, path: str) -> Iterator[str]:
    """Yield the commands that a model of start sites is for."""
    if _kind(model) == START_SITES:
        yield f"score-promoters {path} genome.fa.gz -o scores.bw"
        if _call_precision(model) is not None:
            yield f"call-promoters {path} genome.fa.gz -o calls.bed"


def _call_precision(model: LoadedModel) -> CallPrecision | None:
    assert model.path is not None
    path = model.path / FILE
    return read_call_precision(path, model.sha256) if path.is_file() else None


def _example(model: LoadedModel) -> str:
    if isinstance(model, LoadedPromoterModel | LoadedChromatinModel):
        return f'model.predict("ACGT" * {model.settings.window // 4}, pad=True)'
    return 'model.embed("ACGT" * 100)' if model.tokenizer.is_dna else "print(model)"


def _training(
    model: LoadedModel, provenance: Mapping[str, Any], metrics: Mapping[str, Any]
) -> Iterator[str]:
    genome = _at(provenance, "configuration", "genome")
    if assembly := _at(genome, "name") or _at(genome, "assembly"):
        yield f"Assembly: {_text(assembly)}"
    data = _at(provenance, "data", "train")
    if contigs := provenance.get("contigs"):
        if isinstance(contigs, list) and isinstance(
            stretches := provenance.get("stretches"), list
        ):
            divided = {str(text).rpartition(":")[0] for text in stretches}
            contigs = [*(name for name in contigs if name not in divided), *stretches]
        amount = [
            f"{data[key]:,} {key}"
            for key in ("bases", "tokens")
            if type(_at(data, key)) is int
        ]
        if type(passes := _at(data, "passes")) is int:
            amount.append(f"in {passes:,} passes")
        counted = f" ({', '.join(amount)})" if amount else ""
        yield f"Pretrained on {_list(contigs)}{counted}"
    for key, split in (("valid", "validation"), ("test", "test")):
        if held_out := _at(genome, key):
            yield f"Held out for {split}: {_list(held_out)}"
    if excluded := _at(genome, "exclude"):
        yield f"Excluded: {_list(excluded)}"
    if isinstance(model, LoadedPromoterModel) and model.settings.negative_set:
        yield f"Negative set: {_text(model.settings.negative_set)}"
    if (start := provenance.get("pretrained_sha256")) is not None:
        seen = provenance.get("held_out_contigs_seen_in_pretraining")
        unseen = (
            f"; pretraining included {_list(seen)}, which are held out here"
            if seen
            else ""
        )
        if seen is None:
            unseen = "; whether pretraining included sequences that are held out here is unknown"
        yield f"Fine-tuned from the pretrained model with the SHA-256 `{_text(start)}`{unseen}"
    elif model.task != "pretraining" and "pretrained_sha256" in provenance:
        yield "Trained from randomly initialized weights, without pretraining"
    for key, what in (
        ("steps", "Steps"),
        ("tokens_seen", "Tokens seen in training, without padding"),
    ):
        value = metrics.get(key, _at(metrics, "training", key))
        if type(value) is int:
            yield f"{what}: {value:,}"
    if calibration_file(model) is not None:
        yield f"Calibrated, for `--calibrated`, on {_calibrated_on(calibration_of(model).fitted_on)}"
    if precision := _call_precision(model):
        fitted = _list(precision.fitted_on.get("contigs") or "validation contigs")
        yield f"Expected precision of calls, for `call-promoters`, fitted on {fitted}"
    if came := provenance.get("imported_from"):
        part = (
            "" if "pretrained_sha256" not in provenance else "The pretrained model was "
        )
        yield f"{part}{'imported' if part else 'Imported'} from the HuggingFace checkpoint {_text(came)}"
    yield "`provenance.json` has the whole configuration, the seeds and the checksums of the data"


def _calibrated_on(fitted: Mapping[str, Any]) -> str:
    parts = [
        f"{fitted[key]:,} {what}"
        for key, what in (
            ("windows", "validation windows"),
            ("bins", "validation bins"),
            ("further_negatives", "extra negatives"),
        )
        if type(fitted.get(key)) is int
    ]
    contigs = fitted.get("contigs")
    of = (
        f" of {_list(contigs)}" if isinstance(contigs, list | tuple) and contigs else ""
    )
    return (" and ".join(parts) or "validation data") + of


def _figures(
    metrics: Mapping[str, Any], provenance: Mapping[str, Any]
) -> Iterator[str]:
    split = metrics.get("split")
    rows = list(_rows(metrics, _SPLITS.get(str(split), "") if split else "", ()))
    if not rows:
        yield "No metrics were measured."
        return
    yield _table(("metric", "split", "value"), rows[:_MOST_FIGURES])
    if len(rows) > _MOST_FIGURES:
        yield f"`{METRICS}` has {len(rows) - _MOST_FIGURES:,} more metrics."
    if any("(" in value for _, _, value in rows):
        yield "95 % intervals are in parentheses."
    compacted = provenance.get("compacted_from")
    if isinstance(compacted, dict):
        change, text = compacted.get("change"), ""
        if (
            isinstance(change, dict)
            and {"outputs", "largest", "typical"} <= change.keys()
        ):
            text = (
                f": on {_number(change.get('sequences'))} random sequences its {_text(change['outputs'])} "
                f"change by at most {_number(change['largest'])} (their root mean square is "
                f"{_number(change['typical'])})"
            )
        yield f"The metrics were measured before the weights were rounded to float16{text}."


def _rows(
    values: Mapping[str, Any], split: str, above: tuple[str, ...]
) -> Iterator[tuple[str, str, str]]:
    """Yield metrics with their split and value, from nested objects, each with its interval if available."""
    for key, value in values.items():
        if (
            key in ("training", "steps", "tokens_seen", "parameters", "split")
            and not above
        ):
            continue
        if isinstance(value, dict):
            inner = (
                (split, (*above, key)) if key not in _SPLITS else (_SPLITS[key], above)
            )
            yield from _rows(value, *inner)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            if key.endswith(("_low", "_high")) and key.rpartition("_")[0] in values:
                continue
            bounds = [values.get(f"{key}_{end}") for end in ("low", "high")]
            text = _number(value)
            if None not in bounds:
                text += f" ({'–'.join(map(_number, bounds))})"
            yield _text(" ".join((*above, key)).replace("_", " ")), split or "–", text
        elif isinstance(value, str) and key == "note" and value:
            yield "note", split or "–", _text(value)


def _recipe(
    model: LoadedModel, commands: Sequence[str], metrics: Mapping[str, Any]
) -> Iterator[str]:
    if commands:
        yield (
            "```console\n" + "\n".join(f"$ {command}" for command in commands) + "\n```"
        )
    elif model.task in _STAGES:
        yield (
            f"The metrics are from the end of `bigbird-dna {_STAGES[model.task]} CONFIG`. The keys of CONFIG "
            "are in `configuration` in `provenance.json`; the same command on the same data trains the model "
            "again."
        )
        if "calls" in metrics:
            yield "Those of calls are from `bigbird-dna model calibrate-calls`."
    else:
        yield "The publisher gave no commands."


def _limits(model: LoadedModel) -> Iterator[str]:
    yield from _LIMITS.get(_kind(model), ())
    if model.tokenizer.is_dna:
        yield (
            "Performance on other species, or on genomes that differ much from the training genome, was not "
            "measured unless it is listed above."
        )
    yield "For research only: not made or tested for clinical decisions."


def _license(license: str, provenance: Mapping[str, Any]) -> Iterator[str]:
    yield f"The weights: {_text(license)}."
    configuration = provenance.get("configuration")
    keys = [_at(configuration, "genome", "reference"), provenance.get("promoters")]
    known = [
        load_sources()[key]
        for key in keys
        if isinstance(key, str) and key in load_sources()
    ]
    if known:
        yield "The training data:"
        yield _bullets(
            f"{_text(one.key)}: {_text(one.license)}; cite {_text(one.citation)}"
            for one in known
        )


def _at(values: Any, *keys: str) -> Any:
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _text(value: object) -> str:
    """Return a value escaped for Markdown, on one line."""
    return _SPECIAL.sub(r"\\\1", shortened(" ".join(str(value).split()), 300))


def _list(values: object) -> str:
    names = list(values) if isinstance(values, list | tuple) else [values]
    more = (
        f" and {len(names) - _LONGEST_LIST:,} more"
        if len(names) > _LONGEST_LIST
        else ""
    )
    return ", ".join(_text(name) for name in names[:_LONGEST_LIST]) + more


def _number(value: object) -> str:
    if type(value) is int:
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else _text(value)


def _table(header: Sequence[str], rows: Any) -> str:
    return "\n".join(
        f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)
    )


def _bullets(items: Any) -> str:
    return "\n".join(f"* {item}" for item in items)
