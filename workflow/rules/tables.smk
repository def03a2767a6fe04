"""Tables 5, 6 and 7 of the BigBird paper: targets of their own, which `all` doesn't ask for.

Language models are trained as those of a study, on the tables' windows and bins; comparators are fitted by their
commands.
"""

if not SEQUENCES:

    use rule prepare_promoter_windows as table_windows with:
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
            aliases=lambda wildcards: [*SET_ALIASES, *table_window_settings(wildcards)],


rule table_pretrain:
    input:
        config=PATHS.stage("pretraining"),
        stores=rules.prepare_tokens.output,
        tokenizer=rules.prepare_tokenizer.output[0],
    output:
        directory(PATHS.table_pretrained("{lm}")),
    log:
        PATHS.log("table-pretrain-{lm}"),
    benchmark:
        PATHS.benchmark("table-pretrain-{lm}")
    wildcard_constraints:
        lm=TABLE_NAMES,
    container:
        AROUND_TRAINING
    threads: max(8, CONFIG.num_gpus)
    resources:
        processes=CONFIG.num_gpus,
        gpu=CONFIG.num_gpus,
        mem_mb=growing(16000 * CONFIG.num_gpus),
        runtime=2880,
    params:
        settings=table_pretraining,
        tokens=subpath(input.tokenizer, parent=True),
        checkpoints=f"{TABLE_CHECKPOINTS}/pretraining/{{lm}}",
        launch=LAUNCH,
        threads=threads_each,
        limit=time_limit,
        device=device,
    shell:
        "{params.launch:q} pretrain {input.config:q} {params.settings:q} --tokens {params.tokens:q}"
        " --tokenizer {input.tokenizer:q} --output {output:q}"
        " --checkpoint-dir {params.checkpoints:q} --threads {params.threads:q} {params.limit:q}"
        " --device {params.device:q} > {log:q} 2>&1"


use rule evaluate_pretraining as table_bits with:
    input:
        model=PATHS.table_pretrained("{lm}"),
        stores=rules.prepare_tokens.output,
        tokenizer=rules.prepare_tokenizer.output[0],
    output:
        PATHS.table_bits("{lm}"),
    log:
        PATHS.log("table-bits-{lm}"),
    benchmark:
        PATHS.benchmark("table-bits-{lm}")
    wildcard_constraints:
        lm=TABLE_NAMES,
    params:
        tokens=subpath(input.tokenizer, parent=True),
        length=lambda wildcards: TABLE_MODELS[wildcards.lm].tokens,
        # Table 5 has the run's own predictors, of inputs of the run's length; these are of others.
        predictors="--model-only",
        device=device,


use rule study_promoter as table_promoter with:
    input:
        config=PATHS.stage("promoters"),
        windows=PATHS.table_windows("{bases}") / "windows.parquet",
        labels=PATHS.table_windows("{bases}") / "labels.npz",
        reference=WINDOWS_REFERENCE,
        indices=multiext(str(WINDOWS_REFERENCE), ".fai", ".gzi"),
        tokenizer=rules.prepare_tokenizer.output[0],
        pretrained=lambda wildcards: (
            table_pretrained(wildcards.lm) if wildcards.start == "pretrained" else []
        ),
    output:
        directory(
            PATHS.table_model("promoters", "{bases}/{negative_set}", "{lm}", "{start}", "{seed}")
        ),
    log:
        PATHS.log("table-promoters-{bases}-{negative_set}-{lm}-{start}-{seed}"),
    benchmark:
        PATHS.benchmark("table-promoters-{bases}-{negative_set}-{lm}-{start}-{seed}")
    wildcard_constraints:
        lm=ANY_MODEL,
    params:
        settings=lambda wildcards: table_settings(wildcards, "promoters"),
        negative_set=lambda wildcards: wildcards.negative_set,
        checkpoints=f"{TABLE_CHECKPOINTS}/promoters/{{bases}}-{{negative_set}}-{{lm}}-{{start}}-{{seed}}",


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
        checkpoints=f"{TABLE_CHECKPOINTS}/promoters/{{bases}}-{{negative_set}}-{{comparator}}-{{seed}}",
        device=device,
    shell:
        "bigbird-dna train comparator-promoter {input.config:q} {wildcards.comparator:q}"
        " --negative-set {wildcards.negative_set:q} {params.settings:q} {params.options:q}"
        " --seed {wildcards.seed:q} --windows {params.windows:q} --reference {input.reference:q}"
        " -o {output:q} --checkpoint-dir {params.checkpoints:q} --threads {threads}"
        " --device {params.device:q} > {log:q} 2>&1"


rule promoter_probe:
    input:
        config=PATHS.stage("promoters"),
        windows=PATHS.table_windows("{bases}") / "windows.parquet",
        labels=PATHS.table_windows("{bases}") / "labels.npz",
        reference=WINDOWS_REFERENCE,
        indices=multiext(str(WINDOWS_REFERENCE), ".fai", ".gzi"),
        model=lambda wildcards: table_pretrained(wildcards.lm),
    output:
        directory(
            PATHS.table_comparator(
                "promoters", "{bases}/{negative_set}", f"{{lm}}-{{start}}-{PROBE}", "{seed}"
            )
        ),
    log:
        PATHS.log("probe-promoters-{bases}-{negative_set}-{lm}-{start}-{seed}"),
    benchmark:
        PATHS.benchmark("probe-promoters-{bases}-{negative_set}-{lm}-{start}-{seed}")
    wildcard_constraints:
        lm=ANY_MODEL,
    threads: 1
    resources:
        gpu=1,
        mem_mb=growing(16000),
        runtime=growing(480),
    params:
        settings=evaluation_settings("promoters"),
        options=probe_options,
        windows=subpath(input.windows, parent=True),
        device=device,
    shell:
        "bigbird-dna train comparator-promoter {input.config:q} probe"
        " --negative-set {wildcards.negative_set:q} {params.settings:q} {params.options:q}"
        " --seed {wildcards.seed:q} --windows {params.windows:q} --reference {input.reference:q}"
        " -o {output:q} --threads {threads} --device {params.device:q} > {log:q} 2>&1"


use rule study_chromatin as table_chromatin with:
    input:
        config=PATHS.stage("chromatin"),
        bins=DATA_FILES["bins"],
        rest=list(DATA_FILES.values()),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        tokenizer=rules.prepare_tokenizer.output[0],
        pretrained=lambda wildcards: (
            table_pretrained(wildcards.lm) if wildcards.start == "pretrained" else []
        ),
    output:
        directory(PATHS.table_model("chromatin", "bins", "{lm}", "{start}", "{seed}")),
    log:
        PATHS.log("table-chromatin-{lm}-{start}-{seed}"),
    benchmark:
        PATHS.benchmark("table-chromatin-{lm}-{start}-{seed}")
    wildcard_constraints:
        lm=ANY_MODEL,
    params:
        settings=lambda wildcards: table_settings(wildcards, "chromatin"),
        checkpoints=f"{TABLE_CHECKPOINTS}/chromatin/{{lm}}-{{start}}-{{seed}}",


use rule study_predictions as table_predictions with:
    input:
        config=PATHS.stage("chromatin-evaluation"),
        bins=DATA_FILES["bins"],
        rest=list(DATA_FILES.values()),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        model=rules.table_chromatin.output[0],
    output:
        PATHS.table_model("chromatin", "bins", "{lm}", "{start}", "{seed}").with_name(
            "predictions.npy"
        ),
    log:
        PATHS.log("table-predictions-{lm}-{start}-{seed}"),
    benchmark:
        PATHS.benchmark("table-predictions-{lm}-{start}-{seed}")
    wildcard_constraints:
        lm=ANY_MODEL,


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
        checkpoints=f"{TABLE_CHECKPOINTS}/chromatin/{{comparator}}-{{seed}}",
        device=device,
    shell:
        "bigbird-dna train comparator-chromatin {input.config:q} {wildcards.comparator:q}"
        " {params.settings:q} {params.options:q} --seed {wildcards.seed:q} --data {params.data:q}"
        " --reference {input.reference:q} -o {output:q} --checkpoint-dir {params.checkpoints:q}"
        " --threads {threads} --device {params.device:q} > {log:q} 2>&1"


rule chromatin_probe:
    input:
        config=PATHS.stage("chromatin"),
        bins=DATA_FILES["bins"],
        rest=list(DATA_FILES.values()),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        model=lambda wildcards: table_pretrained(wildcards.lm),
    output:
        directory(
            PATHS.table_comparator("chromatin", "bins", f"{{lm}}-{{start}}-{PROBE}", "{seed}")
        ),
    log:
        PATHS.log("probe-chromatin-{lm}-{start}-{seed}"),
    benchmark:
        PATHS.benchmark("probe-chromatin-{lm}-{start}-{seed}")
    wildcard_constraints:
        lm=ANY_MODEL,
    threads: 1
    resources:
        gpu=1,
        mem_mb=growing(16000),
        runtime=growing(480),
    params:
        settings=evaluation_settings("chromatin"),
        options=probe_options,
        data=subpath(input.bins, parent=True),
        device=device,
    shell:
        "bigbird-dna train comparator-chromatin {input.config:q} probe {params.settings:q}"
        " {params.options:q} --seed {wildcards.seed:q} --data {params.data:q}"
        " --reference {input.reference:q} -o {output:q} --threads {threads}"
        " --device {params.device:q} > {log:q} 2>&1"


rule table5:
    input:
        own=rules.evaluate_pretraining.output[0],
        others=[PATHS.table_bits(name) for name in TABLE_MODELS],
    output:
        multiext(str(PATHS.report / "tables/table5"), ".tsv", ".json", ".md", ".svg"),
    log:
        PATHS.log("table5"),
    benchmark:
        PATHS.benchmark("table5")
    resources:
        mem_mb=growing(2000),
        runtime=growing(15),
    params:
        others=[f"--bits={name}={PATHS.table_bits(name)}" for name in TABLE_MODELS],
        directory=subpath(output[0], parent=True),
        version=VERSION,
    shell:
        "bigbird-dna report paper-table table5 {input.own:q} {params.others:q} -o {params.directory:q}"
        " > {log:q} 2>&1"


# What a run hasn't got has no table.
if CONFIG.has_promoters and not SEQUENCES:

    rule table6:
        input:
            [
                path
                for (bases, negative_set), models in table_groups().items()
                for path in table_entries("promoters", f"{bases}/{negative_set}", models)
            ],
        output:
            multiext(str(PATHS.report / "tables/table6"), ".tsv", ".json", ".md", ".svg"),
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
            "bigbird-dna report paper-table table6 {input:q} -o {params.directory:q} > {log:q} 2>&1"


if CONFIG.has_chromatin:

    rule table7:
        input:
            directories=table_entries("chromatin", "bins", chromatin_models()),
            predictions=[
                model.with_name("predictions.npy")
                for model in table_models("chromatin", "bins", chromatin_models())
            ],
            labels=rules.train_baseline_chromatin.output.labels,
            tracks=DATA_FILES["tracks"],
        output:
            multiext(str(PATHS.report / "tables/table7"), ".tsv", ".json", ".md", ".svg"),
            PATHS.report / "tables/table7_tracks.tsv",
        log:
            PATHS.log("table7"),
        benchmark:
            PATHS.benchmark("table7")
        resources:
            mem_mb=growing(8000),
            runtime=growing(60),
        params:
            directory=subpath(output[0], parent=True),
            least=CHROMATIN.min_positives_report,
            version=VERSION,
        shell:
            "bigbird-dna report paper-table table7 {input.directories:q} --labels {input.labels:q}"
            " --track-table {input.tracks:q} --min-positives {params.least:q}"
            " -o {params.directory:q} > {log:q} 2>&1"
