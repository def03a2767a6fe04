"""The checked configuration, what each stage sees of it, and what all rules share."""

import json
import os
import sys
from importlib.metadata import version
from pathlib import Path

from bigbird_dna.config import NEGATIVE_SETS, parse_config
from bigbird_dna.errors import BigBirdDnaError
from bigbird_dna.genome.sources import check_sources

# `snakemake` may be called by its path, without its environment activated.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

try:
    CONFIG = parse_config(config)
    SOURCES = check_sources(CONFIG)
except BigBirdDnaError as error:
    # Snakemake's own exceptions would wrap this line in the traceback of the Snakefile.
    sys.exit(f"bigbird-dna: error: {error}")

RESULTS = CONFIG.results
VERSION = version("bigbird-dna")
GENOME = set(type(CONFIG.genome).model_fields) - {"promoters", "chain"}

# The keys that a stage reads: a change of any other key doesn't run it again.
STAGES = {
    "tokens": {"seed": True, "genome": GENOME, "tokens": True},
    "pretraining": {
        "seed": True,
        "genome": GENOME,
        "tokens": True,
        "encoder": True,
        "pretraining": True,
    },
    "windows": {
        "seed": True,
        "genome": True,
        "promoters": {"upstream", "downstream", "negative_sets"},
    },
    "finetuning": {
        "seed": True,
        "genome": True,
        "encoder": True,
        "pretraining": {"sequence_tokens"},
        "promoters": set(type(CONFIG.promoters).model_fields) - {"control", "baseline_kmer"},
    },
    "baseline": {"seed": True, "promoters": {"seed", "baseline_kmer"}},
    "attention": {"encoder": True, "pretraining": {"sequence_tokens"}},
}


wildcard_constraints:
    stage="|".join(STAGES),
    negative_set="|".join(NEGATIVE_SETS),
    model="|".join([*NEGATIVE_SETS, "control"]),


rule stage_config:
    localrule: True
    output:
        f"{RESULTS}/config/{{stage}}.yaml",
    log:
        f"{RESULTS}/logs/config-{{stage}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/config-{{stage}}.tsv"
    params:
        # JSON is YAML.
        text=lambda wildcards: json.dumps(
            CONFIG.model_dump(mode="json", include=STAGES[wildcards.stage]), indent=1
        ),
    shell:
        "printf '%s\\n' {params.text:q} > {output} 2> {log}"
