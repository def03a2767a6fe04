"""Pretraining on one or more processes of one node, and what it is judged beside, which needs no GPU."""


rule pretrain:
    input:
        config=PATHS.stage("pretraining"),
        stores=rules.tokenize.output,
        tokenizer=rules.train_tokenizer.output[0],
    output:
        directory(PATHS.pretrained),
    log:
        PATHS.log("pretrain"),
    benchmark:
        PATHS.benchmark("pretrain")
    container:
        AROUND_TRAINING
    threads: max(8, CONFIG.num_gpus)
    resources:
        processes=CONFIG.num_gpus,
        gpu=CONFIG.num_gpus,
        mem_mb=growing(16000 * CONFIG.num_gpus),
        runtime=2880,
    params:
        tokens=subpath(input.tokenizer, parent=True),
        # No output: Snakemake would remove them before it goes on with a killed job.
        checkpoints=str(PATHS.checkpoints),
        launch=LAUNCH,
        threads=THREADS_EACH,
        limit=LIMIT,
        device=DEVICE,
    shell:
        "{params.launch:q} pretrain {input.config:q} --tokens {params.tokens:q}"
        " --tokenizer {input.tokenizer:q} --output {output:q}"
        " --checkpoint-dir {params.checkpoints:q} --threads {params.threads:q} {params.limit:q}"
        " --device {params.device:q} > {log:q} 2>&1"


rule pretraining_baseline:
    input:
        config=PATHS.stage("pretraining"),
        stores=rules.tokenize.output,
        tokenizer=rules.train_tokenizer.output[0],
    output:
        PATHS.pretraining_baselines,
    log:
        PATHS.log("pretraining-baseline"),
    benchmark:
        PATHS.benchmark("pretraining-baseline")
    resources:
        # n-grams over tokens stop at 4 GB, tables over bases take 1.
        mem_mb=growing(12000),
        runtime=growing(480),
    params:
        tokens=subpath(input.tokenizer, parent=True),
    shell:
        "bigbird-dna train baseline-language {input.config:q} --tokens {params.tokens:q}"
        " --tokenizer {input.tokenizer:q} -o {output:q} > {log:q} 2>&1"


rule evaluate_pretraining:
    input:
        model=rules.pretrain.output[0],
        stores=rules.tokenize.output,
        tokenizer=rules.train_tokenizer.output[0],
        baselines=rules.pretraining_baseline.output[0],
    output:
        PATHS.pretraining_bits,
    log:
        PATHS.log("evaluate-pretraining"),
    benchmark:
        PATHS.benchmark("evaluate-pretraining")
    resources:
        gpu=1,
        mem_mb=growing(12000),
        runtime=growing(120),
    params:
        tokens=subpath(input.tokenizer, parent=True),
        length=CONFIG.pretraining.sequence_tokens,
        predictors=lambda wildcards, input: ["--baselines", input.baselines],
        device=DEVICE,
    shell:
        "bigbird-dna evaluate pretraining {input.model:q} --tokens {params.tokens:q}"
        " --sequence-tokens {params.length:q} {params.predictors:q} -o {output:q}"
        " --device {params.device:q} > {log:q} 2>&1"
