"""Tables and figures of the report; they read the files of the stages and need no model."""

SETS = CONFIG.promoters.negative_sets
CONTROL = ["control"] if CONFIG.promoters.control else []


rule pretraining_report:
    input:
        rules.pretrain.output,
    output:
        loss=report(
            f"{RESULTS}/report/loss.svg",
            category="Pretraining",
            caption="../report/loss.rst",
            labels={"figure": "loss"},
        ),
        bits_per_base=report(
            f"{RESULTS}/report/bits_per_base.svg",
            category="Pretraining",
            caption="../report/bits_per_base.rst",
            labels={"figure": "bits per base"},
        ),
        table=report(
            f"{RESULTS}/report/bits_per_base.tsv",
            category="Pretraining",
            caption="../report/bits_per_base.rst",
            labels={"figure": "bits per base, table"},
        ),
    log:
        f"{RESULTS}/logs/pretraining-report.log",
    benchmark:
        f"{RESULTS}/benchmarks/pretraining-report.tsv"
    resources:
        mem_mb=2000,
        runtime=15,
    params:
        directory=subpath(output.table, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna pretraining-report {input:q} -o {params.directory:q} > {log} 2>&1"


rule promoter_report:
    input:
        models=expand(f"{RESULTS}/models/promoter-{{model}}", model=SETS),
        baselines=expand(f"{RESULTS}/promoters/kmer-{{model}}.parquet", model=SETS),
        control=expand(f"{RESULTS}/models/promoter-{{model}}", model=CONTROL),
    output:
        table=report(
            f"{RESULTS}/report/promoters.tsv",
            category="Promoters",
            caption="../report/promoters.rst",
            labels={"figure": "measures, table"},
        ),
        roc=report(
            f"{RESULTS}/report/roc.svg",
            category="Promoters",
            caption="../report/roc.rst",
            labels={"figure": "ROC"},
        ),
        precision_recall=report(
            f"{RESULTS}/report/precision_recall.svg",
            category="Promoters",
            caption="../report/precision_recall.rst",
            labels={"figure": "precision and recall"},
        ),
        histograms=report(
            f"{RESULTS}/report/score_histograms.svg",
            category="Promoters",
            caption="../report/score_histograms.rst",
            labels={"figure": "scores"},
        ),
    log:
        f"{RESULTS}/logs/promoter-report.log",
    benchmark:
        f"{RESULTS}/benchmarks/promoter-report.tsv"
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        models=lambda wildcards, input: [
            f"--set={name}={model}/predictions.parquet" for name, model in zip(SETS, input.models)
        ],
        baselines=lambda wildcards, input: [
            f"--baseline={name}={path}" for name, path in zip(SETS, input.baselines)
        ],
        control=lambda wildcards, input: [
            f"--control={model}/predictions.parquet" for model in input.control
        ],
        directory=subpath(output.table, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna promoter-report {params.models:q} {params.baselines:q} {params.control:q}"
        " -o {params.directory:q} > {log} 2>&1"


rule finetuning_figure:
    input:
        expand(f"{RESULTS}/models/promoter-{{model}}", model=[*SETS, *CONTROL]),
    output:
        report(
            f"{RESULTS}/report/finetuning_loss.svg",
            category="Promoters",
            caption="../report/finetuning_loss.rst",
            labels={"figure": "loss"},
        ),
    log:
        f"{RESULTS}/logs/finetuning-figure.log",
    benchmark:
        f"{RESULTS}/benchmarks/finetuning-figure.tsv"
    resources:
        mem_mb=2000,
        runtime=15,
    params:
        logs=lambda wildcards, input: [
            f"{name}={model}/training.jsonl" for name, model in zip([*SETS, *CONTROL], input)
        ],
        version=VERSION,
    shell:
        "bigbird-dna loss-figure {params.logs:q} -o {output:q} > {log} 2>&1"


rule score_figure:
    input:
        scores=f"{RESULTS}/scores/promoters.tsv",
        promoters=rules.prepare_promoters.output.loci,
    output:
        report(
            f"{RESULTS}/report/score_track.svg",
            category="Scores along a contig",
            caption="../report/score_track.rst",
            labels={"figure": "scores and known promoters"},
        ),
    log:
        f"{RESULTS}/logs/score-figure.log",
    benchmark:
        f"{RESULTS}/benchmarks/score-figure.tsv"
    resources:
        mem_mb=4000,
        runtime=15,
    params:
        upstream=CONFIG.promoters.upstream,
        version=VERSION,
    shell:
        "bigbird-dna score-figure {input.scores:q} --promoters {input.promoters:q}"
        " --upstream {params.upstream} -o {output:q} > {log} 2>&1"


PROMOTER_FILES = [
    *rules.promoter_report.output,
    *rules.finetuning_figure.output,
    *rules.score_figure.output,
    f"{RESULTS}/scores/promoters.bedgraph",
]


rule attention_figure:
    input:
        f"{RESULTS}/config/attention.yaml",
    output:
        report(
            f"{RESULTS}/report/attention.svg",
            category="Model",
            caption="../report/attention.rst",
            labels={"figure": "attention pattern"},
        ),
    log:
        f"{RESULTS}/logs/attention-figure.log",
    benchmark:
        f"{RESULTS}/benchmarks/attention-figure.tsv"
    resources:
        mem_mb=2000,
        runtime=15,
    params:
        version=VERSION,
    shell:
        "bigbird-dna attention-figure {input:q} -o {output:q} > {log} 2>&1"


rule summary:
    input:
        pretrained=rules.pretrain.output if PRETRAINING else [],
        promoters=rules.promoter_report.output.table if PROMOTERS else [],
        statistics=rules.tokenizer_statistics.output[0],
        groups=rules.auc_report.output.groups if CHROMATIN.tracks else [],
        tracks=rules.auc_report.output.tracks if CHROMATIN.tracks else [],
        variants=rules.variant_report.output.table if VARIANT_REPORT else [],
    output:
        table=report(
            f"{RESULTS}/report/summary.tsv",
            category="Summary",
            caption="../report/summary.rst",
            labels={"figure": "all figures of the run"},
        ),
        text=f"{RESULTS}/report/summary.txt",
    log:
        f"{RESULTS}/logs/summary.log",
    benchmark:
        f"{RESULTS}/benchmarks/summary.tsv"
    resources:
        mem_mb=2000,
        runtime=15,
    params:
        pretrained=lambda wildcards, input: [
            f"--pretraining={path}/metrics.json" for path in input.pretrained
        ],
        tables=lambda wildcards, input: [
            f"--{name}={input[name]}"
            for name in ("promoters", "groups", "tracks", "variants")
            if input.get(name)
        ],
        report=f"{RESULTS}/report.html",
        version=VERSION,
    shell:
        "bigbird-dna summary {params.pretrained:q} --statistics {input.statistics:q}"
        " {params.tables:q}"
        " --report {params.report:q} -o {output.table:q} > {output.text:q} 2> {log}"
