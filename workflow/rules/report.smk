"""Tables and figures of the report; they read the files of the stages and need no model."""

CONTROL = ["control"] if CONFIG.promoters.shuffled_label_control else []
# Sequences that are trimmed to one length around their middle are not aligned at the start site.
POSITION_SETS = [] if SEQUENCES and SEQUENCES.length is not None else SETS


rule pretraining_report:
    input:
        model=rules.pretrain.output[0],
        bits=rules.evaluate_pretraining.output[0],
    output:
        loss=report(
            PATHS.report / "loss.svg",
            category="Pretraining",
            caption=f"{CAPTIONS}/loss.rst",
            labels={"figure": "loss"},
        ),
        bits_per_base=report(
            PATHS.report / "bits_per_base.svg",
            category="Pretraining",
            caption=f"{CAPTIONS}/bits_per_base.rst",
            labels={"figure": "bits per base"},
        ),
        table=report(
            PATHS.report / "bits_per_base.tsv",
            category="Pretraining",
            caption=f"{CAPTIONS}/bits_per_base.rst",
            labels={"figure": "bits per base, table"},
        ),
        held_out=report(
            PATHS.report / "held_out.svg",
            category="Pretraining",
            caption=f"{CAPTIONS}/held_out.rst",
            labels={"figure": "bits per base over training"},
        ),
    log:
        PATHS.log("pretraining-report"),
    benchmark:
        PATHS.benchmark("pretraining-report")
    resources:
        mem_mb=growing(2000),
        runtime=growing(15),
    params:
        directory=subpath(output.table, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna report pretraining {input.model:q} --bits-per-base {input.bits:q}"
        " -o {params.directory:q} > {log:q} 2>&1"


rule promoter_report:
    input:
        models=expand(PATHS.promoter_model("{model}"), model=SETS),
        baselines=expand(PATHS.promoter_baseline("k-mer", "{model}"), model=SETS),
        positions=expand(PATHS.promoter_baseline("position", "{model}"), model=POSITION_SETS),
        control=expand(PATHS.promoter_model("{model}"), model=CONTROL),
    output:
        table=report(
            PATHS.report / "promoters.tsv",
            category="Promoters",
            caption=f"{CAPTIONS}/promoters.rst",
            labels={"figure": "measures, table"},
        ),
        roc=report(
            PATHS.report / "roc.svg",
            category="Promoters",
            caption=f"{CAPTIONS}/roc.rst",
            labels={"figure": "ROC"},
        ),
        precision_recall=report(
            PATHS.report / "precision_recall.svg",
            category="Promoters",
            caption=f"{CAPTIONS}/precision_recall.rst",
            labels={"figure": "precision and recall"},
        ),
        histograms=report(
            PATHS.report / "score_histograms.svg",
            category="Promoters",
            caption=f"{CAPTIONS}/score_histograms.rst",
            labels={"figure": "scores"},
        ),
        calibration=report(
            PATHS.report / "calibration.svg",
            category="Promoters",
            caption=f"{CAPTIONS}/calibration.rst",
            labels={"figure": "calibration"},
        ),
        calibration_table=report(
            PATHS.report / "calibration.tsv",
            category="Promoters",
            caption=f"{CAPTIONS}/calibration.rst",
            labels={"figure": "calibration, table"},
        ),
    log:
        PATHS.log("promoter-report"),
    benchmark:
        PATHS.benchmark("promoter-report")
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        models=lambda wildcards, input: [
            f"--predictions={name}={model}/predictions.parquet"
            for name, model in zip(SETS, input.models)
        ],
        baselines=lambda wildcards, input: [
            f"--baseline={name}={path}" for name, path in zip(SETS, input.baselines)
        ],
        positions=lambda wildcards, input: [
            f"--position={name}={path}" for name, path in zip(POSITION_SETS, input.positions)
        ],
        control=lambda wildcards, input: [
            f"--control={model}/predictions.parquet" for model in input.control
        ],
        directory=subpath(output.table, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna evaluate promoters {params.models:q} {params.baselines:q} {params.positions:q}"
        " {params.control:q} -o {params.directory:q} > {log:q} 2>&1"


rule finetuning_figure:
    input:
        expand(PATHS.promoter_model("{model}"), model=[*SETS, *CONTROL]),
    output:
        report(
            PATHS.report / "finetuning_loss.svg",
            category="Promoters",
            caption=f"{CAPTIONS}/finetuning_loss.rst",
            labels={"figure": "loss"},
        ),
    log:
        PATHS.log("finetuning-figure"),
    benchmark:
        PATHS.benchmark("finetuning-figure")
    resources:
        mem_mb=growing(2000),
        runtime=growing(15),
    params:
        logs=lambda wildcards, input: [
            f"{name}={model}/training.jsonl" for name, model in zip([*SETS, *CONTROL], input)
        ],
        version=VERSION,
    shell:
        "bigbird-dna report plot-loss {params.logs:q} -o {output:q} > {log:q} 2>&1"


rule score_figure:
    input:
        scores=PATHS.promoter_scores("tsv"),
        promoters=rules.prepare_promoters.output.loci,
    output:
        report(
            PATHS.report / "score_track.svg",
            category="Scores along a contig",
            caption=f"{CAPTIONS}/score_track.rst",
            labels={"figure": "scores and known promoters"},
        ),
    log:
        PATHS.log("score-figure"),
    benchmark:
        PATHS.benchmark("score-figure")
    resources:
        mem_mb=growing(4000),
        runtime=growing(15),
    params:
        upstream=CONFIG.promoters.windows.upstream,
        version=VERSION,
    shell:
        "bigbird-dna report plot-scores {input.scores:q} --promoters {input.promoters:q}"
        " --upstream {params.upstream:q} -o {output:q} > {log:q} 2>&1"


PROMOTER_FIGURES = [
    *rules.promoter_report.output,
    *rules.finetuning_figure.output,
    # A sequence of one window has one score: nothing to draw along it.
    *([] if SEQUENCES else rules.score_figure.output),
]


rule attention_figure:
    input:
        PATHS.stage("attention"),
    output:
        report(
            PATHS.report / "attention.svg",
            category="Model",
            caption=f"{CAPTIONS}/attention.rst",
            labels={"figure": "attention pattern"},
        ),
    log:
        PATHS.log("attention-figure"),
    benchmark:
        PATHS.benchmark("attention-figure")
    resources:
        mem_mb=growing(2000),
        runtime=growing(15),
    params:
        version=VERSION,
    shell:
        "bigbird-dna report plot-attention {input:q} -o {output:q} > {log:q} 2>&1"


# Options of the command; the rule's inputs have the same names.
SUMMARY_TABLES = [
    "promoter-counts",
    "promoters",
    "calibration",
    "groups",
    "track-table",
    "variants",
]


rule summary:
    input:
        pretrained=rules.pretrain.output if CONFIG.has_pretraining else [],
        bits=rules.evaluate_pretraining.output if CONFIG.has_pretraining else [],
        promoters=rules.promoter_report.output.table if CONFIG.has_promoters else [],
        calibration=(rules.promoter_report.output.calibration_table if CONFIG.has_promoters else []),
        statistics=rules.tokenizer_statistics.output[0] if CONFIG.has_genome else [],
        promoter_counts=(
            rules.prepare_promoters.output.counts if CONFIG.has_promoters and not SEQUENCES else []
        ),
        groups=rules.auc_report.output.groups if CONFIG.has_chromatin else [],
        track_table=rules.auc_report.output.tracks if CONFIG.has_chromatin else [],
        variants=rules.variant_report.output.table if KNOWN_EFFECTS else [],
    output:
        table=report(
            PATHS.report / "summary.tsv",
            category="Summary",
            caption=f"{CAPTIONS}/summary.rst",
            labels={"figure": "all figures of the run"},
        ),
        text=PATHS.report / "summary.txt",
    log:
        PATHS.log("summary"),
    benchmark:
        PATHS.benchmark("summary")
    resources:
        mem_mb=growing(2000),
        runtime=growing(15),
    params:
        pretrained=lambda wildcards, input: [
            *(f"--pretraining={path}/metrics.json" for path in input.pretrained),
            *(f"--bits-per-base={path}" for path in input.bits),
        ],
        statistics=lambda wildcards, input: (
            ["--statistics", input.statistics] if input.statistics else []
        ),
        tables=lambda wildcards, input: [
            f"--{option}={input[option.replace('-', '_')]}"
            for option in SUMMARY_TABLES
            if input.get(option.replace("-", "_"))
        ],
        report=str(PATHS.report_page),
        version=VERSION,
    shell:
        "bigbird-dna report summary {params.pretrained:q} {params.statistics:q} {params.tables:q}"
        " --report {params.report:q} -o {output.table:q} > {output.text:q} 2> {log:q}"


rule run_report:
    input:
        config=PATHS.stage("report"),
        figures=[
            rules.summary.output.table,
            *(rules.pretraining_report.output if CONFIG.has_pretraining else []),
            *(PROMOTER_FIGURES if CONFIG.has_promoters else []),
            *(rules.auc_report.output if CONFIG.has_chromatin else []),
            *(rules.variant_report.output if KNOWN_EFFECTS else []),
            *SIMILARITY_FIGURES,
            *(rules.pretraining_study.output if CONFIG.pretraining_study else []),
            *(rules.layer_probes.output if PROBED else []),
            *rules.attention_figure.output,
        ],
    output:
        PATHS.report_page,
    log:
        PATHS.log("run-report"),
    benchmark:
        PATHS.benchmark("run-report")
    resources:
        mem_mb=growing(2000),
        runtime=growing(15),
    params:
        benchmarks=str(Path(PATHS.benchmark("run-report")).parent),
        version=VERSION,
    shell:
        "bigbird-dna report run {input.config:q} {input.figures:q}"
        " --benchmarks {params.benchmarks:q} -o {output:q} > {log:q} 2>&1"
