"""Long-Range Arena's generated tasks: the target `long_range`, which `all` doesn't ask for."""

LONG_RANGE = CONFIG.long_range_arena or LongRangeConfig()


rule long_range_data:
    input:
        config=PATHS.stage("long-range"),
    output:
        directory(PATHS.long_range_data("{task}")),
    log:
        PATHS.log("long-range-data-{task}"),
    benchmark:
        PATHS.benchmark("long-range-data-{task}")
    wildcard_constraints:
        task="|".join(LONG_RANGE_TASKS),
    resources:
        mem_mb=growing(4000),
        runtime=growing(240),
    shell:
        "bigbird-dna experiment lra-data {input.config:q} {wildcards.task:q} -o {output:q} > {log:q} 2>&1"


rule long_range_model:
    input:
        config=PATHS.stage("long-range"),
        data=rules.long_range_data.output[0],
    output:
        directory(PATHS.long_range_model("{task}", "{attention}", "{seed}")),
    log:
        PATHS.log("long-range-{task}-{attention}-{seed}"),
    benchmark:
        PATHS.benchmark("long-range-{task}-{attention}-{seed}")
    wildcard_constraints:
        task="|".join(LONG_RANGE_TASKS),
        attention="|".join(LONG_RANGE.attentions),
    # One each: classifiers then train side by side.
    threads: 1
    resources:
        gpu=1,
        mem_mb=growing(16000),
        runtime=1440,
    params:
        checkpoints=str(PATHS.checkpoints / "long_range/{task}-{attention}-{seed}"),
        limit=time_limit,
        device=device,
    shell:
        "bigbird-dna experiment lra-train {input.config:q} {wildcards.task:q} {wildcards.attention:q}"
        " --seed {wildcards.seed:q} --data {input.data:q} -o {output:q}"
        " --checkpoint-dir {params.checkpoints:q} --threads {threads} {params.limit:q}"
        " --device {params.device:q} > {log:q} 2>&1"


rule long_range:
    input:
        expand(
            PATHS.long_range_model("{task}", "{attention}", "{seed}"),
            task=LONG_RANGE.tasks,
            attention=LONG_RANGE.attentions,
            seed=LONG_RANGE.seeds,
        ),
    output:
        multiext(str(PATHS.report / "long_range"), ".tsv", ".md"),
    log:
        PATHS.log("long-range"),
    benchmark:
        PATHS.benchmark("long-range")
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        directory=subpath(output[0], parent=True),
        version=VERSION,
    shell:
        "bigbird-dna experiment lra-report {input:q} -o {params.directory:q} > {log:q} 2>&1"
