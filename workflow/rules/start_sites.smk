"""The dense model of start sites: training, and the expected precision of its calls along the held-out contigs."""


use rule pretrain as finetune_start_sites with:
    input:
        **GENOME,
        config=PATHS.stage("start-sites"),
        promoters=PATHS.promoters,
        ignore=PATHS.pieces / "ignore.bed" if CONFIG.pieces else [],
        aliases=ALIASES,
        tokenizer=CONFIG.model_tokenizer,
        pretrained=PATHS.pretrained if CONFIG.promoters.dense.initial == "pretrained" else [],
    output:
        directory(PATHS.trained_start_sites),
    log:
        PATHS.log("finetune-start-sites"),
    benchmark:
        PATHS.benchmark("finetune-start-sites")
    priority: 3
    threads: CONFIG.promoters.dense.num_gpus
    resources:
        **training(CONFIG.promoters.dense.num_gpus, 1440),
    params:
        command="finetune-promoter",
        start=given("tokenizer", "pretrained"),
        data=lambda wildcards, input: [
            *("--promoters", input.promoters, "--reference", input.reference, *SET_ALIASES),
            *(("--ignore", input.ignore) if input.ignore else ()),
        ],


rule model_calibrate_start_sites:
    input:
        **GENOME,
        model=PATHS.trained_start_sites,
        promoters=PATHS.promoters,
    output:
        directory(PATHS.start_sites_model),
    log:
        PATHS.log("model-calibrate-start-sites"),
    benchmark:
        PATHS.benchmark("model-calibrate-start-sites")
    priority: 2
    resources:
        **job(16000, 720, gpu=1),
    params:
        suppress=CONFIG.example_scan.suppress,
        device=device,
    shell:
        "bigbird-dna model calibrate {input.model:q} --reference {input.reference:q}"
        " --promoters {input.promoters:q} --suppress {params.suppress} -o {output:q}"
        " --threads {threads} --device {params.device:q} > {log:q} 2>&1"


rule call_promoters:
    input:
        model=PATHS.start_sites_model,
        fasta=PATHS.test_sequence,
    output:
        PATHS.promoter_calls,
    log:
        PATHS.log("call-promoters"),
    benchmark:
        PATHS.benchmark("call-promoters")
    resources:
        **job(8000, 240, gpu=1),
    params:
        device=device,
    shell:
        "bigbird-dna call-promoters {input.model:q} {input.fasta:q} -o {output:q}"
        " --threads {threads} --device {params.device:q} > {log:q} 2>&1"
