"""Models, each trained by processes on one or several nodes, and their baselines, which need no GPU."""

CONTROL_SET = CONFIG.promoters.shuffled_label_control
CONTROLS = ["control"] if CONTROL_SET else []


rule pretrain:
    input:
        **TOKENS,
        further=[f"{home}/train/store.json" for home in CONFIG.pretraining.further_tokens],
        config=PATHS.stage("pretraining"),
    output:
        directory(PATHS.pretrained),
    log:
        PATHS.log("pretrain"),
    benchmark:
        PATHS.benchmark("pretrain")
    priority: 4  # on all cores; jobs of single cores fill the time afterwards
    container:
        AROUND_TRAINING
    threads: max(8, CONFIG.num_gpus)
    resources:
        **training(CONFIG.num_gpus, 2880),
    params:
        command="pretrain",
        data=["--tokens", str(PATHS.tokens)],
        start=given("tokenizer", "pretrained"),
        # Not an output: Snakemake would remove the checkpoints before it resumes a killed job.
        checkpoints=str(PATHS.checkpoints),
        launch=LAUNCH,
        threads=threads_each,
        device=device,
    shell:
        "{params.launch} {params.command:q} {input.config:q} {params.data:q} {params.start:q}"
        " --output {output:q} --checkpoint-dir {params.checkpoints:q} --threads {params.threads:q}"
        " --device {params.device:q} > {log:q} 2>&1"


if START:

    ruleorder: start_model > pretrain

    rule start_model:
        input:
            START,
        output:
            directory(PATHS.pretrained),
        log:
            PATHS.log("start-model"),
        benchmark:
            PATHS.benchmark("start-model")
        resources:
            **job(8000, 30),
        params:
            command=lambda wildcards, output: start_command(CONFIG, output[0]),
        shell:
            "{params.command:q} > {log:q} 2>&1"


use rule pretrain as finetune_promoter with:
    input:
        **WINDOWS,
        config=PATHS.stage("promoters"),
        tokenizer=CONFIG.model_tokenizer,
        pretrained=PATHS.pretrained if CONFIG.promoters.classifier.initial == "pretrained" else [],
    output:
        directory(PATHS.promoter_model("{model}")),
    log:
        PATHS.log("finetune-promoter-{model}"),
    benchmark:
        PATHS.benchmark("finetune-promoter-{model}")
    priority: 1
    # One thread per process: training models in parallel is faster than one after the other on more cores.
    threads: CONFIG.promoters.num_gpus
    resources:
        **training(CONFIG.promoters.num_gpus, 1440),
    params:
        command="finetune-promoter",
        data=lambda wildcards, input: [
            *("--negative-set", CONTROL_SET if wildcards.model in CONTROLS else wildcards.model),
            *["--shuffle-labels"] * (wildcards.model in CONTROLS),
            *("--windows", str(PATHS.windows), "--reference", input.reference),
        ],


use rule pretrain as finetune_chromatin with:
    input:
        **BINS,
        config=PATHS.stage("chromatin"),
        tokenizer=CONFIG.model_tokenizer,
        pretrained=PATHS.pretrained if CHROMATIN.model.initial == "pretrained" else [],
    output:
        directory(PATHS.chromatin_model("{window}", "{member}")),
    log:
        PATHS.log("finetune-chromatin-{window}-{member}"),
    benchmark:
        PATHS.benchmark("finetune-chromatin-{window}-{member}")
    # Most jobs depend on this model. Long jobs start before short ones, so that cores finish at about the same time.
    priority: 3
    threads: CHROMATIN.num_gpus
    resources:
        **training(CHROMATIN.num_gpus, 2880),
    params:
        command="finetune-chromatin",
        start=given("tokenizer", "pretrained"),
        data=lambda wildcards, input: [
            *("--window", wildcards.window, "--ensemble-index", wildcards.member),
            *("--data", str(PATHS.chromatin_data), "--reference", input.reference),
        ],


use rule pretrain as finetune_sequences with:
    input:
        config=PATHS.stage("sequences"),
        labeled=[INPUTS.files[f"labeled{n + 1}"] for n in range(len(CONFIG.sequences.files))],
        negatives=INPUTS.files.get("labeled_negatives", []),
        tokenizer=CONFIG.model_tokenizer if CONFIG.has_genome or START else [],
        pretrained=PATHS.pretrained if CONFIG.sequences.model.initial == "pretrained" else [],
    output:
        directory(PATHS.sequence_model),
    log:
        PATHS.log("finetune-sequences"),
    benchmark:
        PATHS.benchmark("finetune-sequences")
    threads: CONFIG.sequences.num_gpus
    resources:
        **training(CONFIG.sequences.num_gpus, 1440),
    params:
        # A configuration is an option here, and the last word before the file.
        command=lambda wildcards, input: ["finetune-sequences", *input.labeled, "--config"],
        data=labeled_sequence_args(CONFIG),
        start=given("tokenizer", "pretrained", "negatives"),


rule train_baseline_promoter:
    input:
        **WINDOWS,
        config=PATHS.stage("promoter-baseline"),
        scan=lambda wildcards: (
            PATHS.test_sequence
            if START_SITES and wildcards.negative_set == CONFIG.example_scan.negative_set
            else []
        ),
    output:
        directory(PATHS.promoter_baselines("{negative_set}")),
    log:
        PATHS.log("train-baseline-promoter-{negative_set}"),
    benchmark:
        PATHS.benchmark("train-baseline-promoter-{negative_set}")
    resources:
        **job(16000, 120),
    params:
        windows=subpath(input.windows, parent=True),
        scan=lambda wildcards, input: (
            [
                *("--scan", input.scan, f"--stride={CONFIG.example_scan.stride}"),
                f"--set=promoters.windows.upstream={CONFIG.promoters.windows.upstream}",
            ]
            if input.scan
            else []
        ),
        version=VERSION,
    shell:
        "bigbird-dna train baseline promoter {input.config:q} --negative-set {wildcards.negative_set:q}"
        " --windows {params.windows:q} --reference {input.reference:q}"
        " {params.scan:q} --output {output:q} > {log:q} 2>&1"


rule train_baseline_chromatin:
    input:
        **BINS,
        config=PATHS.stage("chromatin-evaluation"),
    output:
        predictions=PATHS.chromatin_kmers,
        dyads=PATHS.chromatin_dyads,
        bins=PATHS.held_out_bins / "bins.parquet",
        labels=PATHS.held_out_bins / "labels.npz",
    log:
        PATHS.log("train-baseline-chromatin"),
    benchmark:
        PATHS.benchmark("train-baseline-chromatin")
    resources:
        **job(16000, 240),
    params:
        data=subpath(input.bins, parent=True),
        held_out=subpath(output.labels, parent=True),
    shell:
        "bigbird-dna train baseline chromatin {input.config:q} --data {params.data:q}"
        " --reference {input.reference:q} -o {output.predictions:q}"
        " --write-dyads {output.dyads:q} --write-labels {params.held_out:q} --threads {threads}"
        " > {log:q} 2>&1"


MEMBERS = [PATHS.chromatin_model(CHROMATIN.data.window, n) for n in range(CHROMATIN.models)]
# The model that scores variants.
CHROMATIN_MODEL = PATHS.combined_chromatin if CHROMATIN.models > 1 else MEMBERS[0]


rule model_ensemble:
    input:
        MEMBERS,
    output:
        directory(PATHS.combined_chromatin),
    log:
        PATHS.log("model-ensemble"),
    benchmark:
        PATHS.benchmark("model-ensemble")
    shell:
        "bigbird-dna model ensemble {input:q} -o {output:q} > {log:q} 2>&1"


rule model_regressions:
    input:
        MEMBERS[0],
    output:
        directory(PATHS.chromatin_regressions),
    log:
        PATHS.log("model-regressions"),
    benchmark:
        PATHS.benchmark("model-regressions")
    shell:
        "bigbird-dna model regressions {input:q} -o {output:q} > {log:q} 2>&1"


# A separate output directory: before a rule runs again, Snakemake removes its outputs. An error here then does not
# remove a trained model, and models from earlier versions are calibrated without training.
rule model_calibrate_chromatin:
    input:
        **BINS,
        config=PATHS.stage("chromatin-calibration"),
        model=CHROMATIN_MODEL,
    output:
        directory(PATHS.calibrated_chromatin),
    log:
        PATHS.log("model-calibrate-chromatin"),
    benchmark:
        PATHS.benchmark("model-calibrate-chromatin")
    resources:
        **job(16000, 720, gpu=1),
    params:
        data=subpath(input.bins, parent=True),
        device=device,
    shell:
        "bigbird-dna model calibrate {input.model:q} --config {input.config:q} --data {params.data:q}"
        " --reference {input.reference:q} -o {output:q} --threads {threads}"
        " --device {params.device:q} > {log:q} 2>&1"
