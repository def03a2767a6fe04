"""Plots of scores, and the report of the run; they read files of the stages and need no model."""


rule report_plot_scores:
    input:
        scores=PATHS.promoter_scores,
        calls=PATHS.promoter_calls if START_SITES else [],
        promoters=PATHS.promoters,
        annotation=INPUTS.files.get("annotation", []),
    output:
        PATHS.report / "score_track.svg",
    log:
        PATHS.log("report-plot-scores"),
    benchmark:
        PATHS.benchmark("report-plot-scores")
    resources:
        **job(4000, 15),
    params:
        files=given("calls", "annotation"),
        version=VERSION,
    shell:
        "bigbird-dna report plot-scores {input.scores:q} --promoters {input.promoters:q}"
        " {params.files:q} -o {output:q} > {log:q} 2>&1"


rule report_run:
    input:
        config=PATHS.stage("report"),
        pretraining=[PATHS.pretrained, PATHS.pretraining_bits] * CONFIG.has_pretraining,
        start_model=PATHS.pretrained if START else [],
        promoters=(
            [PATHS.promoter_model(name) for name in [*SETS, *CONTROLS]]
            * CONFIG.has_promoter_windows
        ),
        start_sites=[PATHS.start_sites_model] * CONFIG.has_dense,
        promoter_tables=rules.evaluate_promoters.output if CONFIG.has_promoter_windows else [],
        scan=(
            [*rules.report_plot_scores.output, *rules.evaluate_scan.output]
            if CONFIG.has_promoters
            else []
        ),
        chromatin=rules.auc_report.output if CONFIG.has_chromatin else [],
        variants=rules.evaluate_variants.output if KNOWN_EFFECTS else [],
    output:
        page=PATHS.report_page,
        summary=multiext(str(PATHS.report / "summary"), ".tsv", ".txt"),
        pretraining=[figure(name) for name in ("loss", "bits_per_base") * CONFIG.has_pretraining],
        finetuning=[figure("finetuning_loss")] * CONFIG.has_promoters,
    log:
        PATHS.log("report-run"),
    benchmark:
        PATHS.benchmark("report-run")
    resources:
        **job(2000, 15),
    params:
        run=lambda wildcards, output: Path(output.page).parent,
        version=VERSION,
    shell:
        "bigbird-dna report run {params.run:q} > {log:q} 2>&1"
