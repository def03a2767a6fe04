"""Write the card of a model of start sites: `python -m docs.generators.model_card resources/models/NAME`.

Facts and metrics are those of the model's directory, the description and the license those of `resources/models.yaml`.
"""

import sys
from pathlib import Path

import yaml

from bigbird_dna.model.card import describe_model, read_metrics
from bigbird_dna.model.directory import load
from bigbird_dna.model.published import read_published

LIMITS = """\
* Start sites are rare, and many high scores are false positives: `call-promoters` states the expected precision of each call.
* Expected precision applies to genomes with a density of start sites like that of the validation contigs. Annotated start sites
  are incomplete, and a call at an unknown one counts as false.
* Its effect of a variant is a prediction, not a measurement.
* Performance on other species was not measured.
* For research only: not made or tested for clinical decisions.
"""


def card(directory: Path) -> str:
    """The card of a model of start sites as Markdown."""
    model, name = load(directory), directory.name
    entry = read_published()[name]
    size = (directory / "model.safetensors").stat().st_size / 1e6

    def table(rows: dict[str, str], head: str) -> str:
        lines = [f"| {key} | {value} |" for key, value in rows.items()]
        return "\n".join([f"| {head} | |", "| --- | --- |", *lines])

    sources = yaml.safe_load(Path("resources/sources.yaml").read_text(encoding="utf-8"))
    record = load_record(directory)
    used = [record["configuration"]["genome"]["reference"], record["promoters"]]
    facts = describe_model(model) | {"size": f"{size:.2f} MB"}
    if "started_from" in record:
        start = record["started_from"]
        facts["started from"] = f"{start['what']}; SHA-256 {start['sha256']}"
    data = [f"* `{key}`: {sources[key]['license']}" for key in used if key in sources]
    return f"""# {name}

{entry.description}.

{table(facts, "fact")}

## Use

```console
$ bigbird-dna score-promoters {name} genome.fa.gz -o scores.bw
$ bigbird-dna call-promoters {name} genome.fa.gz -o calls.bed
```

```python
import bigbird_dna

model = bigbird_dna.load("{name}")
plus, minus = model.predict(sequence)[0]  # probability of a start site at each base
```

## Metrics

Calls along whole contigs that training did not read, within so many bp of an annotated start site of their strand:

{table(read_metrics(model), "metric")}

## Limits

{LIMITS}
## License

The weights: {entry.license}. The training data:

{chr(10).join(data)}
"""


def load_record(directory: Path) -> dict:
    """The record of a model's origin."""
    return yaml.safe_load((directory / "provenance.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument)
        (path / "MODEL_CARD.md").write_text(card(path), encoding="utf-8")
