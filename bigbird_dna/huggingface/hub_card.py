"""The README of a checkpoint: a model card with metadata, a usage example, training and metrics."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from bigbird_dna.model.card import Publication, model_card
from bigbird_dna.model.model import CARD, MADE_FOR, LoadedModel

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
_LICENSE_ROW = re.compile(r"^\| License \| (.+) \|$", re.MULTILINE)


def hub_card(
    model: LoadedModel, values: Mapping[str, Any], name: str, license: str | None
) -> str:
    """The text of the README of the checkpoint `name`, whose `config.json` has these `values`.

    `license` is that of the weights; None: that of the model's own card, if it has one.
    """
    license = license or _own_license(model)
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
    publication = Publication(
        name,
        f"A model of bigbird-dna, for {MADE_FOR[model.task]}.",
        license or "not stated",
    )
    front = yaml.safe_dump(data, sort_keys=False)
    text = model_card(model, publication, _usage(model, auto, name, code))
    text = text.replace("`provenance.json`", "`provenance.json` of the model directory")
    return f"---\n{front}---\n\n{text}"


def _own_license(model: LoadedModel) -> str | None:
    """The license in the card of the model's directory."""
    file = None if model.path is None else model.path / CARD
    found = (
        _LICENSE_ROW.search(file.read_text("utf-8"))
        if file is not None and file.is_file()
        else None
    )
    return found[1].replace("\\", "") if found else None


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
