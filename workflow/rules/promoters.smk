"""Promoter windows, a model and its baselines for each negative set, and the control."""


rule promoter_windows:
    input:
        config=PATHS.stage("windows"),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        promoters=rules.prepare_promoters.output.loci,
        annotation=INPUTS.files.get("annotation", []),
        aliases=ALIASES,
    output:
        windows=PATHS.windows / "windows.parquet",
        labels=PATHS.windows / "labels.npz",
        counts=PATHS.windows / "windows.json",
    log:
        PATHS.log("promoter-windows"),
    benchmark:
        PATHS.benchmark("promoter-windows")
    resources:
        mem_mb=growing(8000),
        runtime=growing(120),
    params:
        directory=subpath(output.windows, parent=True),
        aliases=SET_ALIASES,
        annotation=lambda wildcards, input: (
            ["--annotation", input.annotation] if input.annotation else []
        ),
    shell:
        "bigbird-dna prepare promoter-windows {input.config:q} {params.aliases:q} --reference {input.reference:q}"
        " --promoters {input.promoters:q} {params.annotation:q} --output {params.directory:q}"
        " > {log:q} 2>&1"


# Both make the data set: of sequences, or of a genome.
if SEQUENCES:

    ruleorder: promoter_sequences > promoter_windows

else:

    ruleorder: promoter_windows > promoter_sequences


rule promoter_sequences:
    input:
        positives=INPUTS.files.get("positives", []),
        negatives=INPUTS.files.get("negatives", []),
        splits=INPUTS.files.get("splits", []),
    output:
        windows=PATHS.windows / "windows.parquet",
        labels=PATHS.windows / "labels.npz",
        counts=PATHS.windows / "windows.json",
        splits=PATHS.windows / "splits.tsv",
        fasta=multiext(str(PATHS.sequences), "", ".fai", ".gzi"),
        training=multiext(str(PATHS.training_sequences), "", ".fai", ".gzi"),
        test=multiext(str(PATHS.test_sequences), "", ".fai", ".gzi"),
    log:
        PATHS.log("promoter-sequences"),
    benchmark:
        PATHS.benchmark("promoter-sequences")
    resources:
        mem_mb=growing(8000),
        runtime=growing(120),
    params:
        directory=subpath(output.windows, parent=True),
        files=lambda wildcards, input: [
            f"--{role}={input[role]}" for role in ("negatives", "splits") if input.get(role)
        ],
        options=sequence_options(),
    shell:
        "bigbird-dna prepare sequences {input.positives:q} {params.files:q} {params.options:q}"
        " --output {params.directory:q} > {log:q} 2>&1"


rule finetune_promoter:
    input:
        config=PATHS.stage("promoters"),
        windows=PATHS.windows / "windows.parquet",
        labels=PATHS.windows / "labels.npz",
        reference=WINDOWS_REFERENCE,
        indices=multiext(str(WINDOWS_REFERENCE), ".fai", ".gzi"),
        tokenizer=rules.train_tokenizer.output[0],
        pretrained=rules.pretrain.output if CONFIG.promoters.model.initial == "pretrained" else [],
    output:
        directory(PATHS.promoter_model("{model}")),
    log:
        PATHS.log("finetune-promoter-{model}"),
    benchmark:
        PATHS.benchmark("finetune-promoter-{model}")
    priority: 1
    container:
        AROUND_TRAINING
    # One each: models then train side by side, which is faster than one after the other on more cores.
    threads: CONFIG.promoters.num_gpus
    resources:
        processes=CONFIG.promoters.num_gpus,
        gpu=CONFIG.promoters.num_gpus,
        mem_mb=growing(16000 * CONFIG.promoters.num_gpus),
        runtime=1440,
    params:
        task=lambda wildcards: (
            ["--negative-set", CONFIG.promoters.shuffled_label_control, "--shuffle-labels"]
            if wildcards.model == "control"
            else ["--negative-set", wildcards.model]
        ),
        start=lambda wildcards, input: (
            ["--pretrained", *input.pretrained] if input.pretrained else []
        ),
        windows=subpath(input.windows, parent=True),
        checkpoints=str(PATHS.checkpoints),
        launch=LAUNCH,
        threads=THREADS_EACH,
        limit=LIMIT,
        device=DEVICE,
    shell:
        "{params.launch:q} finetune-promoter {input.config:q} {params.task:q}"
        " --windows {params.windows:q} --reference {input.reference:q}"
        " --tokenizer {input.tokenizer:q} {params.start:q} --output {output:q}"
        " --checkpoint-dir {params.checkpoints:q} --threads {params.threads:q} {params.limit:q}"
        " --device {params.device:q} > {log:q} 2>&1"


rule promoter_baseline:
    input:
        config=PATHS.stage("promoter-baseline"),
        windows=PATHS.windows / "windows.parquet",
        labels=PATHS.windows / "labels.npz",
        reference=WINDOWS_REFERENCE,
        indices=multiext(str(WINDOWS_REFERENCE), ".fai", ".gzi"),
    output:
        PATHS.promoter_baseline("{baseline}", "{negative_set}"),
    log:
        PATHS.log("promoter-baseline-{baseline}-{negative_set}"),
    benchmark:
        PATHS.benchmark("promoter-baseline-{baseline}-{negative_set}")
    wildcard_constraints:
        baseline="kmer|position",
    resources:
        mem_mb=growing(16000),
        runtime=growing(120),
    params:
        baseline=lambda wildcards: "k-mer" if wildcards.baseline == "kmer" else wildcards.baseline,
        windows=subpath(input.windows, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna train baseline-promoter {input.config:q} --negative-set {wildcards.negative_set:q}"
        " --baseline {params.baseline:q} --windows {params.windows:q} --reference {input.reference:q}"
        " --output {output:q}"
        " > {log:q} 2>&1"
