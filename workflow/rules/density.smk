"""A causal model of images or text: the target `density`, which `all` doesn't ask for."""


rule density:
    input:
        config=PATHS.stage("density"),
        train=CONFIG.byte_lm.train if CONFIG.byte_lm else [],
        test=CONFIG.byte_lm.test if CONFIG.byte_lm else [],
    output:
        directory(PATHS.density),
    log:
        PATHS.log("density"),
    benchmark:
        PATHS.benchmark("density")
    threads: 8
    resources:
        gpu=1,
        mem_mb=growing(16000),
        runtime=2880,
    params:
        checkpoints=str(PATHS.checkpoints / "density"),
        limit=time_limit,
        device=device,
    shell:
        "bigbird-dna experiment byte-lm {input.config:q} -o {output:q} --checkpoint-dir {params.checkpoints:q}"
        " --threads {threads} {params.limit:q} --device {params.device:q} > {log:q} 2>&1"
