"""Tables 5, 6 and 7 of the BigBird paper: targets of their own, which `all` doesn't ask for.

Language models are those of a study, on the tables' windows and bins; comparators are fitted by their commands.
"""


use rule promoter_windows as table_windows with:
    output:
        windows=PATHS.table_windows("{bases}") / "windows.parquet",
        labels=PATHS.table_windows("{bases}") / "labels.npz",
        counts=PATHS.table_windows("{bases}") / "windows.json",
    log:
        PATHS.log("table-windows-{bases}"),
    benchmark:
        PATHS.benchmark("table-windows-{bases}")
    params:
        directory=subpath(output.windows, parent=True),
        aliases=lambda wildcards: [
            *SET_ALIASES,
            *(
                word
                for text in (
                    *table_sides(wildcards),
                    f"promoters.windows.negative_sets=[{', '.join(TABLE_SETS)}]",
                )
                for word in ("--set", text)
            ),
        ],


use rule study_promoter as table_promoter with:
    input:
        config=PATHS.stage("promoters"),
        windows=PATHS.table_windows("{bases}") / "windows.parquet",
        labels=PATHS.table_windows("{bases}") / "labels.npz",
        reference=WINDOWS_REFERENCE,
        indices=multiext(str(WINDOWS_REFERENCE), ".fai", ".gzi"),
        tokenizer=rules.train_tokenizer.output[0],
        pretrained=lambda wildcards: (
            rules.pretrain.output if wildcards.start == "pretrained" else []
        ),
    output:
        directory(PATHS.table_model("promoters", "{bases}/{negative_set}", "{start}", "{seed}")),
    log:
        PATHS.log("table-promoters-{bases}-{negative_set}-{start}-{seed}"),
    benchmark:
        PATHS.benchmark("table-promoters-{bases}-{negative_set}-{start}-{seed}")
    params:
        settings=lambda wildcards: table_settings(wildcards, "promoters", table_sides(wildcards)),
        negative_set=lambda wildcards: wildcards.negative_set,
        checkpoints=TABLE_CHECKPOINTS,


rule promoter_comparator:
    input:
        config=PATHS.stage("promoters"),
        windows=PATHS.table_windows("{bases}") / "windows.parquet",
        labels=PATHS.table_windows("{bases}") / "labels.npz",
        reference=WINDOWS_REFERENCE,
        indices=multiext(str(WINDOWS_REFERENCE), ".fai", ".gzi"),
    output:
        directory(
            PATHS.table_comparator("promoters", "{bases}/{negative_set}", "{comparator}", "{seed}")
        ),
    log:
        PATHS.log("comparator-promoters-{bases}-{negative_set}-{comparator}-{seed}"),
    benchmark:
        PATHS.benchmark("comparator-promoters-{bases}-{negative_set}-{comparator}-{seed}")
    wildcard_constraints:
        comparator="|".join(TABLES.promoters) or "none",
    threads: 1
    resources:
        gpu=1,
        mem_mb=growing(16000),
        runtime=1440,
    params:
        settings=evaluation_settings("promoters"),
        options=comparator_options,
        windows=subpath(input.windows, parent=True),
        checkpoints=TABLE_CHECKPOINTS,
        device=DEVICE,
    shell:
        "bigbird-dna fit-promoter-comparator {input.config:q} {wildcards.comparator:q}"
        " --negative-set {wildcards.negative_set:q} {params.settings:q} {params.options:q}"
        " --seed {wildcards.seed:q} --windows {params.windows:q} --reference {input.reference:q}"
        " -o {output:q} --checkpoints {params.checkpoints:q} --threads {threads}"
        " --device {params.device:q} > {log:q} 2>&1"


use rule study_chromatin as table_chromatin with:
    output:
        directory(PATHS.table_model("chromatin", "bins", "{start}", "{seed}")),
    log:
        PATHS.log("table-chromatin-{start}-{seed}"),
    benchmark:
        PATHS.benchmark("table-chromatin-{start}-{seed}")
    params:
        settings=lambda wildcards: table_settings(wildcards, "chromatin"),
        checkpoints=TABLE_CHECKPOINTS,


use rule study_predictions as table_predictions with:
    input:
        config=PATHS.stage("chromatin-evaluation"),
        bins=DATA_FILES["bins"],
        rest=list(DATA_FILES.values()),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        model=rules.table_chromatin.output[0],
    output:
        PATHS.table_model("chromatin", "bins", "{start}", "{seed}").with_name("predictions.npy"),
    log:
        PATHS.log("table-predictions-{start}-{seed}"),
    benchmark:
        PATHS.benchmark("table-predictions-{start}-{seed}")


rule chromatin_comparator:
    input:
        config=PATHS.stage("chromatin"),
        bins=DATA_FILES["bins"],
        rest=list(DATA_FILES.values()),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
    output:
        directory(PATHS.table_comparator("chromatin", "bins", "{comparator}", "{seed}")),
    log:
        PATHS.log("comparator-chromatin-{comparator}-{seed}"),
    benchmark:
        PATHS.benchmark("comparator-chromatin-{comparator}-{seed}")
    wildcard_constraints:
        comparator="|".join(TABLES.chromatin) or "none",
    threads: 1
    resources:
        gpu=1,
        mem_mb=growing(16000),
        runtime=1440,
    params:
        settings=evaluation_settings("chromatin"),
        options=comparator_options,
        data=subpath(input.bins, parent=True),
        checkpoints=TABLE_CHECKPOINTS,
        device=DEVICE,
    shell:
        "bigbird-dna fit-chromatin-comparator {input.config:q} {wildcards.comparator:q}"
        " {params.settings:q} {params.options:q} --seed {wildcards.seed:q} --data {params.data:q}"
        " --reference {input.reference:q} -o {output:q} --checkpoints {params.checkpoints:q}"
        " --threads {threads} --device {params.device:q} > {log:q} 2>&1"


rule table5:
    input:
        rules.evaluate_pretraining.output[0],
    output:
        multiext(str(PATHS.report / "tables/table5"), ".tsv", ".json", ".md"),
    log:
        PATHS.log("table5"),
    benchmark:
        PATHS.benchmark("table5")
    resources:
        mem_mb=growing(2000),
        runtime=growing(15),
    params:
        directory=subpath(output[0], parent=True),
        version=VERSION,
    shell:
        "bigbird-dna report-table table5 {input:q} -o {params.directory:q} > {log:q} 2>&1"


# What a run hasn't got has no table.
if CONFIG.has_promoters and not SEQUENCES:

    rule table6:
        input:
            [
                path
                for bases in TABLES.windows or [CONFIG.promoters.windows.length]
                for negative_set in TABLE_SETS
                for of in (table_models, table_comparators)
                for path in of("promoters", f"{bases}/{negative_set}")
            ],
        output:
            multiext(str(PATHS.report / "tables/table6"), ".tsv", ".json", ".md"),
        log:
            PATHS.log("table6"),
        benchmark:
            PATHS.benchmark("table6")
        resources:
            mem_mb=growing(8000),
            runtime=growing(60),
        params:
            directory=subpath(output[0], parent=True),
            version=VERSION,
        shell:
            "bigbird-dna report-table table6 {input:q} -o {params.directory:q} > {log:q} 2>&1"


if CONFIG.has_chromatin:

    rule table7:
        input:
            directories=[
                path
                for of in (table_models, table_comparators)
                for path in of("chromatin", "bins")
            ],
            predictions=[
                model.with_name("predictions.npy") for model in table_models("chromatin", "bins")
            ],
            labels=rules.chromatin_baseline.output.labels,
            tracks=DATA_FILES["tracks"],
        output:
            multiext(str(PATHS.report / "tables/table7"), ".tsv", ".json", ".md"),
        log:
            PATHS.log("table7"),
        benchmark:
            PATHS.benchmark("table7")
        resources:
            mem_mb=growing(8000),
            runtime=growing(60),
        params:
            directory=subpath(output[0], parent=True),
            version=VERSION,
        shell:
            "bigbird-dna report-table table7 {input.directories:q} --labels {input.labels:q}"
            " --track-table {input.tracks:q} -o {params.directory:q} > {log:q} 2>&1"
