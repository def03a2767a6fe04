"""Tasks on text: records, a model, its predictions and figures of each, and one page of all. By the extra nlp."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

from bigbird_dna.config import as_in_a_file
from bigbird_dna.errors import BigBirdDnaError
from bigbird_dna.papers.nlp.config import NlpConfig, parse_config

try:
    config.update(as_in_a_file(config, workflow.config_settings.config, NlpConfig))
    NLP = parse_config(config)
except BigBirdDnaError as error:
    sys.exit(f"bigbird-dna: error: {error}")

NLP_RESULTS = Path(NLP.results)
NLP_PLACES = NLP.paths("{task}")


def nlp_section(wildcards):
    """A task's section with every key, as the text of a configuration file (JSON, which is YAML)."""
    values = {
        "results": NLP.results,
        "tasks": {wildcards.task: NLP.task(wildcards.task).model_dump(mode="json")},
    }
    return json.dumps(values, indent=1, ensure_ascii=False)


def nlp_judged(wildcards):
    """What a task's figures are of: predictions, or of masked tokens the model."""
    paths = NLP.paths(wildcards.task)
    kind = NLP.task(wildcards.task).kind
    return {"model": paths.model} if kind == "pretraining" else {"predictions": paths.predictions}


wildcard_constraints:
    task="|".join(NLP.tasks) or "-",


# What a task reads of the configuration: a change of another task doesn't run it again.
rule nlp_config:
    output:
        NLP_RESULTS / "config/{task}.yaml",
    log:
        NLP_RESULTS / "logs/config-{task}.log",
    benchmark:
        NLP_RESULTS / "benchmarks/config-{task}.tsv"
    localrule: True
    params:
        text=nlp_section,
    shell:
        "printf '%s\\n' {params.text:q} > {output:q} 2> {log:q}"


# A public data set is fetched where Snakemake runs.
rule nlp_records:
    input:
        config=rules.nlp_config.output,
    output:
        [NLP_PLACES.split(split) for split in ("train", "valid", "test")],
    log:
        NLP_RESULTS / "logs/records-{task}.log",
    benchmark:
        NLP_RESULTS / "benchmarks/records-{task}.tsv"
    localrule: True
    params:
        directory=subpath(output[0], parent=True),
    shell:
        "bigbird-dna nlp prepare {input.config:q} --task {wildcards.task:q}"
        " -o {params.directory:q} > {log:q} 2>&1"


rule nlp_train:
    input:
        config=rules.nlp_config.output,
        records=rules.nlp_records.output,
    output:
        directory(NLP_PLACES.model),
    log:
        NLP_RESULTS / "logs/train-{task}.log",
    benchmark:
        NLP_RESULTS / "benchmarks/train-{task}.tsv"
    threads: 1
    resources:
        gpu=1,
        mem_mb=growing(32000),
        runtime=2880,
    params:
        command=lambda wildcards: (
            "pretrain" if NLP.task(wildcards.task).kind == "pretraining" else "finetune"
        ),
        limit=LIMIT,
        device=DEVICE,
    shell:
        "bigbird-dna nlp {params.command:q} {input.config:q} --task {wildcards.task:q} -o {output:q}"
        " {params.limit:q} --threads {threads} --device {params.device:q} > {log:q} 2>&1"


rule nlp_predict:
    input:
        config=rules.nlp_config.output,
        records=NLP_PLACES.split("test"),
        model=rules.nlp_train.output,
    output:
        NLP_PLACES.predictions,
    log:
        NLP_RESULTS / "logs/predict-{task}.log",
    benchmark:
        NLP_RESULTS / "benchmarks/predict-{task}.tsv"
    threads: 1
    resources:
        gpu=1,
        mem_mb=growing(16000),
        runtime=growing(720),
    params:
        device=DEVICE,
    shell:
        "bigbird-dna nlp predict {input.config:q} --task {wildcards.task:q} --model {input.model:q}"
        " --records {input.records:q} -o {output:q} --threads {threads} --device {params.device:q}"
        " > {log:q} 2>&1"


rule nlp_evaluate:
    input:
        unpack(nlp_judged),
        config=rules.nlp_config.output,
        records=rules.nlp_records.output,
    output:
        NLP_PLACES.evaluation,
    log:
        NLP_RESULTS / "logs/evaluate-{task}.log",
    benchmark:
        NLP_RESULTS / "benchmarks/evaluate-{task}.tsv"
    threads: 1
    resources:
        mem_mb=growing(16000),
        runtime=growing(720),
    shell:
        "bigbird-dna nlp evaluate {input.config:q} --task {wildcards.task:q} -o {output:q}"
        " --threads {threads} > {log:q} 2>&1"


rule nlp_report:
    input:
        [NLP.paths(task).evaluation for task in NLP.demo],
    output:
        NLP_RESULTS / "report.html",
    log:
        NLP_RESULTS / "logs/report.log",
    benchmark:
        NLP_RESULTS / "benchmarks/report.tsv"
    localrule: True
    params:
        version=version("bigbird-dna"),
    shell:
        "bigbird-dna nlp report {input:q} -o {output:q} > {log:q} 2>&1"
