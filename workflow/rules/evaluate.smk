"""Evaluation of models on held-out data, by tables and figures of the report."""


rule evaluate_pretraining:
    input:
        **TOKENS,
        model=PATHS.pretrained,
    output:
        PATHS.pretraining_bits,
    log:
        PATHS.log("evaluate-pretraining"),
    benchmark:
        PATHS.benchmark("evaluate-pretraining")
    resources:
        # Token n-grams are limited to 4 GB.
        **job(12000, 480, gpu=1),
    params:
        tokens=subpath(input.tokenizer, parent=True),
        length=CONFIG.pretraining.sequence_tokens,
        device=device,
    shell:
        "bigbird-dna evaluate pretraining {input.model:q} --tokens {params.tokens:q}"
        " --sequence-tokens {params.length:q} -o {output:q}"
        " --device {params.device:q} > {log:q} 2>&1"


NETWORK_ALONE = PATHS.chromatin_predictions("{window}", "-network")


rule evaluate_test_bins:
    input:
        **BINS,
        config=PATHS.stage("chromatin-evaluation"),
        models=[PATHS.chromatin_model("{window}", n) for n in range(CHROMATIN.models)],
    output:
        predictions=PATHS.chromatin_predictions("{window}"),
        network=[NETWORK_ALONE] * CHROMATIN.model.ensemble,
    log:
        PATHS.log("evaluate-test-bins-{window}"),
    benchmark:
        PATHS.benchmark("evaluate-test-bins-{window}")
    wildcard_constraints:
        window=r"\d+",
    resources:
        **job(16000, 720, gpu=1),
    params:
        data=subpath(input.bins, parent=True),
        network=lambda wildcards, output: [f"--write-network={name}" for name in output[1:]],
        device=device,
    shell:
        "bigbird-dna evaluate test-bins {input.config:q} {input.models:q} --data {params.data:q}"
        " --reference {input.reference:q} {params.network:q}"
        " -o {output.predictions:q} --threads {threads} --device {params.device:q} > {log:q} 2>&1"


rule evaluate_promoters:
    input:
        models=list(MODELS.values()),
        baselines=[PATHS.promoter_baselines(name) for name in SETS],
        control=[PATHS.promoter_model(name) for name in CONTROLS],
    output:
        table=PATHS.report / "promoters.tsv",
        roc=figure("roc"),
        precision_recall=figure("precision_recall"),
        calibration=figure("calibration"),
        calibration_table=PATHS.report / "calibration.tsv",
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


if CONFIG.has_promoters:
    # With start sites, these have scanned the same sequence.
    SCAN_BASELINES = PATHS.promoter_baselines(CONFIG.example_scan.negative_set)

    rule evaluate_scan:
        input:
            scores=PATHS.promoter_scores,
            baselines=SCAN_BASELINES if START_SITES else [],
            promoters=PATHS.promoters,
        output:
            table=PATHS.report / "scan.tsv",
            figure=figure("scan"),
        log:
            PATHS.log("evaluate-scan"),
        benchmark:
            PATHS.benchmark("evaluate-scan")
        resources:
            **job(8000, 60),
        params:
            baselines=[
                f"--scores={name}={SCAN_BASELINES / scan_file(name)}"
                for name in (POSITION, KMER, CPG) * START_SITES
            ],
            directory=subpath(output.table, parent=True),
            suppress=CONFIG.example_scan.suppress,
            version=VERSION,
        shell:
            "bigbird-dna evaluate scan --scores model={input.scores:q} {params.baselines:q}"
            " --suppress {params.suppress} --promoters {input.promoters:q} -o {params.directory:q} > {log:q} 2>&1"


ALONE = PATHS.chromatin_predictions(CHROMATIN.data.window, "-network")


rule auc_report:
    input:
        predictions=PATHS.chromatin_predictions(CHROMATIN.data.window),
        network=[ALONE] * CHROMATIN.model.ensemble,
        kmers=rules.train_baseline_chromatin.output.predictions,
        dyads=rules.train_baseline_chromatin.output.dyads,
        labels=rules.train_baseline_chromatin.output.labels,
        bins=rules.train_baseline_chromatin.output.bins,
        tracks=DATA_FILES["tracks"],
    output:
        tracks=PATHS.report / "chromatin/tracks.tsv",
        groups=PATHS.report / "chromatin/groups.tsv",
        page=PATHS.report / "chromatin/report.html",
    log:
        PATHS.log("auc-report"),
    benchmark:
        PATHS.benchmark("auc-report")
    threads: 2
    resources:
        **job(4000, 60),
    params:
        directory=subpath(output.page, parent=True),
        network=[f"--compare=network={ALONE}"] * CHROMATIN.model.ensemble,
        dyads=[f"--compare=dyads={PATHS.chromatin_dyads}"]
        * (CHROMATIN.evaluation.baseline_dyads > 0),
        least=CHROMATIN.min_positives_report,
        version=VERSION,
    shell:
        "bigbird-dna auc-report {input.predictions:q} {input.labels:q} --tracks {input.tracks:q}"
        " --bins {input.bins:q} --compare kmers={input.kmers:q} {params.dyads:q}"
        " {params.network:q} --min-positives {params.least:q} --threads {threads}"
        " -o {params.directory:q} > {log:q} 2>&1"


rule evaluate_variants:
    input:
        variants=PATHS.scored_variants(),
        regressions=[PATHS.scored_variants("-regressions")] * CHROMATIN.model.ensemble,
    output:
        table=PATHS.report / "variants.tsv",
        compared=[PATHS.report / "compared_variants.tsv"] * CHROMATIN.model.ensemble,
        figure=figure("variants"),
    log:
        PATHS.log("evaluate-variants"),
    benchmark:
        PATHS.benchmark("evaluate-variants")
    resources:
        **job(2000, 15),
    params:
        directory=subpath(output.table, parent=True),
        compare=lambda wildcards, input: [f"--compare=kmers={name}" for name in input.regressions],
        version=VERSION,
    shell:
        "bigbird-dna evaluate variants {input.variants:q} {params.compare:q}"
        " -o {params.directory:q} > {log:q} 2>&1"
