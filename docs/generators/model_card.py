"""Write the card of a model of start sites or of sequences: `python -m docs.generators.model_card resources/models/NAME`.

Facts and metrics are those of the model's directory, the description and the license those of `resources/models.yaml`.
"""

import sys
from pathlib import Path

import yaml

from bigbird_dna.model.card import describe_model, read_metrics
from bigbird_dna.model.directory import load
from bigbird_dna.model.published import read_published

USE = {
    "start-sites": """\
```console
$ bigbird-dna score-promoters {name} genome.fa.gz -o scores.bw
$ bigbird-dna call-promoters {name} genome.fa.gz -o calls.bed
```

```python
import bigbird_dna

model = bigbird_dna.load("{name}")
plus, minus = model.predict(sequence)[0]  # probability of a start site at each base
```""",
    "sequences": """\
```console
$ bigbird-dna score-sequences {name} windows.fa -o scores.tsv
```

```python
import bigbird_dna

model = bigbird_dna.load("{name}")
scores = model.predict(sequences)[:, 0]  # one per sequence
```""",
}
METRICS = {
    "start-sites": "Calls along whole contigs that training did not read, within so many bp of an annotated start site of "
    "their strand:",
    "sequences": "Sequences that training did not read. `model` is the network with the regressions on base positions and "
    "k-mers that are stored with it; `network` is without them, and the others are baselines:",
}
LIMITS = {
    "start-sites": """\
* Start sites are rare, and many high scores are false positives: `call-promoters` states the expected precision of each call.
* Expected precision applies to genomes with a density of start sites like that of the validation contigs. Annotated start sites
  are incomplete, and a call at an unknown one counts as false.
* Its effect of a variant is a prediction, not a measurement.
""",
    "sequences": """\
* Sequences have 150 bp in the direction of transcription, and the start site is about base 119, from 0: moved by 10 bp, they are
  scored almost as well ([results](../../../docs/results/start-sites.md#escherichia-coli)). Other lengths need `--pad`, which was not measured.
* It is no model to scan a genome with: most of its calls along the test regions are wrong.
* Its scores are no probabilities of a random sequence: training gave active and inactive windows the same weight.
* Activity is that of one measurement, in a reporter, in rich medium: promoters of other conditions are not active in it.
* It is not measurably better than a convolutional network or a regression on 5-mers of the same sequences.
""",
}
ALL_LIMITS = """\
* Performance on other species was not measured.
* For research only: not made or tested for clinical decisions.
"""


def card(directory: Path) -> str:
    """The card of a model as Markdown."""
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
    if not data:  # of pieces
        data = [
            f"* start sites: {sources['GRCh38.promoters']['license']}",
            "* pieces of GRCh37 and GRCh38: public; `workflow/config/human_pieces.yaml` has the address of each file",
        ]
    return f"""# {name}

{entry.description}.

{table(facts, "fact")}

## Use

{USE[entry.task].format(name=name)}

## Metrics

{METRICS[entry.task]}

{table(read_metrics(model), "metric")}

## Limits

{LIMITS[entry.task]}{ALL_LIMITS}
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
