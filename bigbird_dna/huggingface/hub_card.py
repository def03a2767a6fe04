"""The README of a checkpoint: a model card with metadata, a usage example, training and metrics."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from bigbird_dna.model.card import describe_model, read_metrics
from bigbird_dna.model.model import MADE_FOR, LoadedModel

README = "README.md"
_LICENSES = (
    "apache-2.0",
    "mit",
    "bsd-3-clause",
    "gpl-3.0",
    "cc0-1.0",
    "cc-by-4.0",
    "cc-by-sa-4.0",
    "cc-by-nc-4.0",
)
_PIPELINES = {
    "AutoModelForMaskedLM": "fill-mask",
    "AutoModelForCausalLM": "text-generation",
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModelForQuestionAnswering": "question-answering",
    "AutoModel": "feature-extraction",
}
_SPECIAL = re.compile(r"([\\`*_<>\[\]|#&~])")


def hub_card(
    model: LoadedModel, values: Mapping[str, Any], name: str, license: str | None
) -> str:
    """The text of the README of the checkpoint `name`, whose `config.json` has these `values`.

    `license` is that of the weights; None: not stated.
    """
    code = "auto_map" in values
    kind = values["architectures"][0].removeprefix("BigBirdDna").removeprefix("BigBird")
    auto = f"AutoModel{kind.removeprefix('Model')}"
    data: dict[str, Any] = {
        "library_name": "transformers",
        "tags": ["biology", "genomics", "dna", "bigbird-dna"],
    }
    if license is not None:
        identifier = license.lower().replace(" ", "-")
        known = identifier in _LICENSES
        data |= (
            {"license": identifier}
            if known
            else {"license": "other", "license_name": license}
        )
    if auto in _PIPELINES:
        data["pipeline_tag"] = _PIPELINES[auto]
    front = yaml.safe_dump(data, sort_keys=False)
    return "\n\n".join(
        [
            f"---\n{front}---",
            f"# {name}",
            f"A model of bigbird-dna, for {MADE_FOR[model.task]}.",
            *_usage(model, auto, name, code),
            _table(describe_model(model)),
            "## Metrics",
            _table(read_metrics(model)),
            "For research only: not made or tested for clinical decisions.",
        ]
    )


def _table(rows: Mapping[str, str]) -> str:
    escaped = {label: _SPECIAL.sub(r"\\\1", text) for label, text in rows.items()}
    lines = [f"| {label} | {text} |" for label, text in escaped.items()]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def _usage(model: LoadedModel, auto: str, name: str, code: bool) -> list[str]:
    """How the checkpoint is used."""
    window = getattr(model.settings, "window", 0) or 200
    options = ", trust_remote_code=True" if code else ""
    needs = (
        "`pip install transformers bigbird-dna`"
        if code
        else "`pip install transformers`"
    )
    sequence = f'"ACGT" * {window // 4}' + (
        f' + "{"ACGT"[: window % 4]}"' if window % 4 else ""
    )
    example = (
        f"from transformers import {auto}, AutoTokenizer\n\n"
        f'tokenizer = AutoTokenizer.from_pretrained("{name}"{options})\n'
        f'model = {auto}.from_pretrained("{name}"{options})\n'
        f'outputs = model(**tokenizer([{sequence}], return_tensors="pt"))'
    )
    return [
        f"After {needs}; lower case is read as upper case, and IUPAC codes as N:",
        f"```python\n{example}\n```",
        'For adapters of PEFT: `LoraConfig(target_modules=["query", "key", "value"])`. '
        f"`bigbird-dna import-hf {name} MODEL_DIR` makes a model directory of the checkpoint, also of one "
        "that was tuned.",
    ]
