"""How like held-out windows are to the training: figures by that, and training without what is like them."""

STRATA = [f"--similarity-bins={','.join(map(str, CONFIG.splits.similarity_strata))}"]


rule nearest_promoters:
    input:
        config=PATHS.stage("promoter-baseline"),
        windows=PATHS.windows / "windows.parquet",
        labels=PATHS.windows / "labels.npz",
        reference=WINDOWS_REFERENCE,
        indices=multiext(str(WINDOWS_REFERENCE), ".fai", ".gzi"),
    output:
        table=PATHS.nearest_promoters("{negative_set}"),
        predictions=PATHS.nearest_predictions("{negative_set}"),
    log:
        PATHS.log("nearest-promoters-{negative_set}"),
    benchmark:
        PATHS.benchmark("nearest-promoters-{negative_set}")
    resources:
        mem_mb=growing(8000),
        runtime=growing(240),
    params:
        windows=subpath(input.windows, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna evaluate nearest-promoters {input.config:q} --negative-set {wildcards.negative_set:q}"
        " --windows {params.windows:q} --reference {input.reference:q} -o {output.table:q}"
        " --predictions {output.predictions:q} > {log:q} 2>&1"


rule promoter_similarity_report:
    input:
        nearest=expand(PATHS.nearest_promoters("{set}"), set=SETS),
        models=expand(PATHS.promoter_model("{set}"), set=SETS),
        baselines=expand(PATHS.promoter_baseline("k-mer", "{set}"), set=SETS),
        predictions=expand(PATHS.nearest_predictions("{set}"), set=SETS),
    output:
        table=report(
            PATHS.report / "similarity.tsv",
            category="Promoters",
            caption=f"{CAPTIONS}/similarity.rst",
            labels={"figure": "by similarity, table"},
        ),
        figure=report(
            PATHS.report / "similarity.svg",
            category="Promoters",
            caption=f"{CAPTIONS}/similarity.rst",
            labels={"figure": "by similarity to the training"},
        ),
    log:
        PATHS.log("promoter-similarity-report"),
    benchmark:
        PATHS.benchmark("promoter-similarity-report")
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        files=lambda wildcards, input: [
            word
            for number, name in enumerate(SETS)
            for word in (
                f"--nearest={name}={input.nearest[number]}",
                f"--predictions={name}/model={input.models[number]}/predictions.parquet",
                f"--predictions={name}/k-mer={input.baselines[number]}",
                f"--predictions={name}/nearest={input.predictions[number]}",
            )
        ],
        strata=STRATA,
        directory=subpath(output.table, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna evaluate promoters-by-similarity {params.files:q} {params.strata:q}"
        " -o {params.directory:q} > {log:q} 2>&1"


rule nearest_bins:
    input:
        config=PATHS.stage("chromatin-evaluation"),
        bins=DATA_FILES["bins"],
        rest=list(DATA_FILES.values()),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
    output:
        table=PATHS.nearest_bins,
        predictions=PATHS.nearest_bin_predictions,
    log:
        PATHS.log("nearest-bins"),
    benchmark:
        PATHS.benchmark("nearest-bins")
    resources:
        mem_mb=growing(16000),
        runtime=growing(480),
    params:
        data=subpath(input.bins, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna evaluate nearest-bins {input.config:q} --data {params.data:q}"
        " --reference {input.reference:q} -o {output.table:q} --predictions {output.predictions:q}"
        " > {log:q} 2>&1"


rule bin_similarity_report:
    input:
        nearest=PATHS.nearest_bins,
        model=PATHS.chromatin_predictions(CHROMATIN.data.window),
        kmers=rules.chromatin_baseline.output.predictions,
        predictions=PATHS.nearest_bin_predictions,
        labels=rules.chromatin_baseline.output.labels,
        tracks=DATA_FILES["tracks"],
    output:
        report(
            PATHS.report / "bin_similarity.tsv",
            category="Chromatin",
            caption=f"{CAPTIONS}/bin_similarity.rst",
            labels={"figure": "by similarity, table"},
        ),
    log:
        PATHS.log("bin-similarity-report"),
    benchmark:
        PATHS.benchmark("bin-similarity-report")
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        least=CHROMATIN.min_positives_report,
        strata=STRATA,
        version=VERSION,
    shell:
        "bigbird-dna evaluate bins-by-similarity {input.nearest:q} --labels {input.labels:q}"
        " --predictions model={input.model:q} --predictions k-mer={input.kmers:q}"
        " --predictions nearest={input.predictions:q} --tracks {input.tracks:q}"
        " --min-positives {params.least:q} {params.strata:q} -o {output:q} > {log:q} 2>&1"


if CONFIG.splits.max_train_test_similarity is not None:

    rule drop_similar_bins:
        input:
            bins=LABELLED_FILES["bins"],
            rest=list(LABELLED_FILES.values()),
            reference=rules.prepare_reference.output.fasta,
            indices=rules.prepare_reference.output.indices,
        output:
            **DATA_FILES,
        log:
            PATHS.log("prepare-filter-bins"),
        benchmark:
            PATHS.benchmark("prepare-filter-bins")
        resources:
            mem_mb=growing(16000),
            runtime=growing(480),
        params:
            labelled=subpath(input.bins, parent=True),
            directory=subpath(output.bins, parent=True),
            similarity=CONFIG.splits.max_train_test_similarity,
        shell:
            "bigbird-dna prepare filter-bins {params.labelled:q} --reference {input.reference:q}"
            " --similarity {params.similarity:q} -o {params.directory:q} > {log:q} 2>&1"


# What the page of the run shows.
SIMILARITY_FIGURES = [
    *(rules.promoter_similarity_report.output if CONFIG.has_promoters else []),
    *(rules.bin_similarity_report.output if CONFIG.has_chromatin else []),
] * bool(CONFIG.splits.similarity_strata)
