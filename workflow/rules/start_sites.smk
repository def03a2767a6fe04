"""The dense model of start sites: its bins, training, calibration and calls along the held-out contigs."""

START_BINS = {
    "bins": PATHS.start_sites_data / "bins.parquet",
    "rest": [
        PATHS.start_sites_data / name for name in ("labels.npz", "tracks.tsv", "dataset.json")
    ],
    **GENOME,
}


rule prepare_start_sites:
    input:
        **GENOME,
        config=PATHS.stage("start-sites-data"),
        promoters=PATHS.promoters,
        aliases=ALIASES,
    output:
        START_BINS["bins"],
        START_BINS["rest"],
    log:
        PATHS.log("prepare-start-sites"),
    benchmark:
        PATHS.benchmark("prepare-start-sites")
    resources:
        **job(8000, 120),
    params:
        directory=subpath(output[0], parent=True),
        aliases=SET_ALIASES,
    shell:
        "bigbird-dna prepare chromatin {input.config:q} --track-table {input.promoters:q}"
        " {params.aliases:q} --reference {input.reference:q} -o {params.directory:q} > {log:q} 2>&1"


use rule pretrain as finetune_start_sites with:
    input:
        **START_BINS,
        config=PATHS.stage("start-sites"),
        tokenizer=CONFIG.model_tokenizer,
        pretrained=PATHS.pretrained if CONFIG.start_sites.initial == "pretrained" else [],
    output:
        directory(PATHS.trained_start_sites),
    log:
        PATHS.log("finetune-start-sites"),
    benchmark:
        PATHS.benchmark("finetune-start-sites")
    priority: 3
    threads: CONFIG.start_sites.num_gpus
    resources:
        **training(CONFIG.start_sites.num_gpus, 1440),
    params:
        command="finetune-chromatin",
        start=given("tokenizer", "pretrained"),
        data=lambda wildcards, input: [
            *("--data", str(PATHS.start_sites_data), "--reference", input.reference)
        ],


rule model_calibrate_start_sites:
    input:
        **START_BINS,
        config=PATHS.stage("start-sites-calibration"),
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
        data=subpath(input.bins, parent=True),
        device=device,
    shell:
        "bigbird-dna model calibrate {input.model:q} --config {input.config:q} --data {params.data:q}"
        " --reference {input.reference:q} --promoters {input.promoters:q} -o {output:q}"
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
