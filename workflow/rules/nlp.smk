"""Text tasks: records, model, predictions and metrics per task; need the optional dependencies nlp."""

import json
import sys
from pathlib import Path

from bigbird_dna.errors import BigBirdDnaError
from bigbird_dna.papers.nlp.config import parse_config
from bigbird_dna.workflow import device, growing, job

try:
    SOURCE = ", ".join(map(str, workflow.overwrite_configfiles)) or "configuration"
    NLP = parse_config(config, SOURCE)
except BigBirdDnaError as error:
    sys.exit(f"bigbird-dna: error: {error}")

NLP_RESULTS = Path(NLP.results)
TASK = NLP.home("{task}")
# Pretraining tasks have no predictions: the model itself is evaluated.
PRETRAINED = {name for name, task in NLP.tasks.items() if task.kind == "pretraining"}


wildcard_constraints:
    task="|".join(NLP.tasks) or "-",


# The configuration keys that a task reads: a change of another task does not run it again.
rule nlp_config:
    output:
        NLP_RESULTS / "config/{task}.yaml",
    log:
        NLP_RESULTS / "logs/config-{task}.log",
    benchmark:
        NLP_RESULTS / "benchmarks/config-{task}.tsv"
    localrule: True
    params:
        text=lambda wildcards: NLP.task_text(wildcards.task),
    shell:
        "printf '%s\\n' {params.text:q} > {output:q} 2> {log:q}"


# A local rule: a public data set is downloaded where Snakemake runs.
rule nlp_prepare:
    input:
        config=rules.nlp_config.output,
    output:
        [TASK / f"data/{split}.jsonl" for split in ("train", "valid", "test")],
    log:
        NLP_RESULTS / "logs/prepare-{task}.log",
    benchmark:
        NLP_RESULTS / "benchmarks/prepare-{task}.tsv"
    localrule: True
    shell:
        "bigbird-dna nlp prepare {input.config:q} --task {wildcards.task:q} > {log:q} 2>&1"


rule nlp_train:
    input:
        config=rules.nlp_config.output,
        records=rules.nlp_prepare.output,
    output:
        directory(TASK / "model"),
    log:
        NLP_RESULTS / "logs/train-{task}.log",
    benchmark:
        NLP_RESULTS / "benchmarks/train-{task}.tsv"
    resources:
        gpu=1,
        mem_mb=growing(32000),
        runtime=2880,
    params:
        device=device,
    shell:
        "bigbird-dna nlp train {input.config:q} --task {wildcards.task:q}"
        " --threads {threads} --device {params.device:q} > {log:q} 2>&1"


rule nlp_predict:
    input:
        config=rules.nlp_config.output,
        records=TASK / "data/test.jsonl",
        model=rules.nlp_train.output,
    output:
        TASK / "predictions.jsonl",
    log:
        NLP_RESULTS / "logs/predict-{task}.log",
    benchmark:
        NLP_RESULTS / "benchmarks/predict-{task}.tsv"
    resources:
        **job(16000, 720, gpu=1),
    params:
        device=device,
    shell:
        "bigbird-dna nlp predict {input.config:q} --task {wildcards.task:q}"
        " --threads {threads} --device {params.device:q} > {log:q} 2>&1"


rule nlp_evaluate:
    input:
        config=rules.nlp_config.output,
        records=rules.nlp_prepare.output,
        evaluated=lambda wildcards: (
            NLP.home(wildcards.task)
            / ("model" if wildcards.task in PRETRAINED else "predictions.jsonl")
        ),
    output:
        TASK / "evaluation.json",
    log:
        NLP_RESULTS / "logs/evaluate-{task}.log",
    benchmark:
        NLP_RESULTS / "benchmarks/evaluate-{task}.tsv"
    resources:
        **job(16000, 720),
    shell:
        "bigbird-dna nlp evaluate {input.config:q} --task {wildcards.task:q}"
        " --threads {threads} > {log:q} 2>&1"
