"""Tables and plots of the report; they read files of the stages and need no model."""


rule report_pretraining:
    input:
        model=PATHS.pretrained,
        bits=PATHS.pretraining_bits,
    output:
        loss=report_item(PATHS.report / "loss.svg"),
        bits_per_base=report_item(PATHS.report / "bits_per_base.svg"),
        table=report_item(PATHS.report / "bits_per_base.tsv"),
        held_out=report_item(PATHS.report / "held_out.svg"),
    log:
        PATHS.log("report-pretraining"),
    benchmark:
        PATHS.benchmark("report-pretraining")
    resources:
        **job(2000, 15),
    params:
        directory=subpath(output.table, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna report pretraining {input.model:q} --bits-per-base {input.bits:q}"
        " -o {params.directory:q} > {log:q} 2>&1"


rule evaluate_promoters:
    input:
        models=list(MODELS.values()),
        baselines=[PATHS.promoter_baselines(name) for name in SETS],
        control=[PATHS.promoter_model(name) for name in CONTROLS],
    output:
        table=report_item(PATHS.report / "promoters.tsv"),
        roc=report_item(PATHS.report / "roc.svg"),
        precision_recall=report_item(PATHS.report / "precision_recall.svg"),
        histograms=report_item(PATHS.report / "score_histograms.svg"),
        calibration=report_item(PATHS.report / "calibration.svg"),
        calibration_table=report_item(PATHS.report / "calibration.tsv"),
    log:
        PATHS.log("evaluate-promoters"),
    benchmark:
        PATHS.benchmark("evaluate-promoters")
    resources:
        **job(4000, 60),
    params:
        files=lambda wildcards, input: [
            *(f"--predictions={name}={path}/predictions.parquet" for name, path in MODELS.items()),
            *(f"--promoter-baseline={name}={path}" for name, path in BASELINES.items()),
            *(f"--control={model}/predictions.parquet" for model in input.control),
        ],
        directory=subpath(output.table, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna evaluate promoters {params.files:q} -o {params.directory:q} > {log:q} 2>&1"


rule report_plot_loss:
    input:
        [PATHS.promoter_model(name) for name in (*SETS, *CONTROLS)],
    output:
        report_item(PATHS.report / "finetuning_loss.svg"),
    log:
        PATHS.log("report-plot-loss"),
    benchmark:
        PATHS.benchmark("report-plot-loss")
    resources:
        **job(2000, 15),
    params:
        logs=lambda wildcards, input: [
            f"{name}={model}/training.jsonl" for name, model in zip([*SETS, *CONTROLS], input)
        ],
        version=VERSION,
    shell:
        "bigbird-dna report plot-loss {params.logs:q} -o {output:q} > {log:q} 2>&1"


rule report_plot_scores:
    input:
        scores=PATHS.promoter_scores,
        calls=PATHS.promoter_calls if START_SITES else [],
        promoters=PATHS.promoters,
        annotation=INPUTS.files.get("annotation", []),
    output:
        report_item(PATHS.report / "score_track.svg"),
    log:
        PATHS.log("report-plot-scores"),
    benchmark:
        PATHS.benchmark("report-plot-scores")
    resources:
        **job(4000, 15),
    params:
        files=given("calls", "annotation"),
        megabases=[f"--megabases={size}" for size in [CONFIG.example_scan.max_megabases] if size],
        version=VERSION,
    shell:
        "bigbird-dna report plot-scores {input.scores:q} --promoters {input.promoters:q}"
        " {params.files:q} {params.megabases:q} -o {output:q} > {log:q} 2>&1"


rule report_plot_attention:
    input:
        PATHS.stage("encoder"),
    output:
        report_item(PATHS.report / "attention.svg"),
    log:
        PATHS.log("report-plot-attention"),
    benchmark:
        PATHS.benchmark("report-plot-attention")
    resources:
        **job(2000, 15),
    params:
        version=VERSION,
    shell:
        "bigbird-dna report plot-attention {input:q} -o {output:q} > {log:q} 2>&1"


rule report_summary:
    input:
        pretrained=PATHS.pretrained if CONFIG.has_pretraining else [],
        bits_per_base=PATHS.pretraining_bits if CONFIG.has_pretraining else [],
        statistics=PATHS.token_statistics if CONFIG.has_genome else [],
        scan_table=rules.evaluate_scan.output.table if START_SITES else [],
        promoter_counts=PATHS.promoter_counts if HAS_TSS else [],
        promoter_table=rules.evaluate_promoters.output.table if CONFIG.has_promoters else [],
        promoter_models=[*MODELS.values()] if CONFIG.has_promoters else [],
        calibration_table=PATHS.report / "calibration.tsv" if CONFIG.has_promoters else [],
        groups=rules.auc_report.output.groups if CONFIG.has_chromatin else [],
        auc_tracks=rules.auc_report.output.tracks if CONFIG.has_chromatin else [],
        variants=rules.evaluate_variants.output.table if KNOWN_EFFECTS else [],
        compared_variants=rules.evaluate_variants.output.compared if KNOWN_EFFECTS else [],
    output:
        table=report_item(PATHS.report / "summary.tsv"),
        text=PATHS.report / "summary.txt",
    log:
        PATHS.log("report-summary"),
    benchmark:
        PATHS.benchmark("report-summary")
    resources:
        **job(2000, 15),
    params:
        pretrained=[f"--pretraining={PATHS.pretrained}/metrics.json"] * CONFIG.has_pretraining,
        bits=given("bits_per_base", joined=True),
        statistics=given("statistics"),
        promoters=[
            f"--promoter-metrics={name}={path}/metrics.json"
            for name, path in (MODELS.items() if CONFIG.has_promoters else ())
        ],
        tables=given(
            *("scan_table", "promoter_counts", "promoter_table", "calibration_table"),
            *("groups", "auc_tracks", "variants", "compared_variants"),
            joined=True,
        ),
        report=str(PATHS.report_page),
        version=VERSION,
    shell:
        "bigbird-dna report summary {params.pretrained:q} {params.bits:q} {params.statistics:q}"
        " {params.promoters:q} {params.tables:q} --report {params.report:q}"
        " -o {output.table:q} > {output.text:q} 2> {log:q}"


rule report_run:
    input:
        config=PATHS.stage("report"),
        figures=[
            rules.report_summary.output.table,
            *(rules.report_pretraining.output if CONFIG.has_pretraining else []),
            *(rules.evaluate_promoters.output if CONFIG.has_promoters else []),
            *(rules.report_plot_loss.output if CONFIG.has_promoters else []),
            *([*rules.report_plot_scores.output, *rules.evaluate_scan.output] if HAS_TSS else []),
            *(rules.auc_report.output if CONFIG.has_chromatin else []),
            *(rules.evaluate_variants.output if KNOWN_EFFECTS else []),
            *(
                rules.evaluate_promoters_by_similarity.output
                if CONFIG.has_promoters and STRATA
                else []
            ),
            *(rules.evaluate_bins_by_similarity.output if CONFIG.has_chromatin and STRATA else []),
            *(rules.pretraining_study.output if CONFIG.pretraining_study else []),
            *(rules.layer_probes.output if PROBED else []),
            *rules.report_plot_attention.output,
        ],
        start_model=PATHS.pretrained if START else [],
    output:
        PATHS.report_page,
    log:
        PATHS.log("report-run"),
    benchmark:
        PATHS.benchmark("report-run")
    resources:
        **job(2000, 15),
    params:
        benchmarks=str(PATHS.benchmark("report-run").parent),
        start=given("start_model"),
        version=VERSION,
    shell:
        "bigbird-dna report run {input.config:q} {input.figures:q} {params.start:q}"
        " --benchmarks {params.benchmarks:q} -o {output:q} > {log:q} 2>&1"
