"""The same encoder with one attention mechanism after the other: a target of its own, `ablation`."""


wildcard_constraints:
    mechanism="|".join(ABLATION_NAMES),
    part=r"steps|time|\d+",


rule ablation_cost:
    input:
        config=PATHS.stage("pretraining"),
        tokenizer=rules.prepare_tokenizer.output[0],
    output:
        PATHS.ablation_cost("{mechanism}"),
    log:
        PATHS.log("ablation-cost-{mechanism}"),
    benchmark:
        PATHS.benchmark("ablation-cost-{mechanism}")
    threads: 1
    resources:
        gpu=1,
        mem_mb=growing(16000),
        runtime=growing(60),
    params:
        settings=ablation_cost_settings,
        lengths=[f"--tokens={length}" for length in (ABLATION.tokens, *ABLATION.lengths)],
        batch=f"--batch-tokens={ABLATION.batch_tokens}",
        device=device,
    shell:
        "bigbird-dna experiment profile-training {input.config:q} {params.settings:q}"
        " --tokenizer {input.tokenizer:q} {params.lengths:q} {params.batch:q} -o {output:q}"
        " --threads {threads} --device {params.device:q} > {log:q} 2>&1"


rule ablation_plan:
    input:
        config=PATHS.stage("pretraining"),
        cost=rules.ablation_cost.output[0],
        reference=(PATHS.ablation_cost(ABLATION.reference) if ABLATION.time_budget_s is None else []),
    output:
        PATHS.ablation_plan("{mechanism}"),
    log:
        PATHS.log("ablation-plan-{mechanism}"),
    benchmark:
        PATHS.benchmark("ablation-plan-{mechanism}")
    resources:
        mem_mb=growing(1000),
        runtime=growing(10),
    params:
        settings=ablation_plan_settings,
        time=lambda wildcards, input: (
            ["--reference", input.reference]
            if input.get("reference")
            else [f"--seconds={ABLATION.time_budget_s}"]
        ),
    shell:
        "bigbird-dna experiment match-compute {input.config:q} {input.cost:q} {params.settings:q}"
        " {params.time:q} -o {output:q} > {log:q} 2>&1"


rule ablation_training:
    input:
        config=lambda wildcards: (
            PATHS.ablation_plan(wildcards.mechanism)
            if wildcards.part == "time"
            else PATHS.stage("pretraining")
        ),
        stores=rules.prepare_tokens.output,
        tokenizer=rules.prepare_tokenizer.output[0],
    output:
        directory(PATHS.ablation_model("{mechanism}", "{part}", "{seed}")),
    log:
        PATHS.log("ablation-{mechanism}-{part}-{seed}"),
    benchmark:
        PATHS.benchmark("ablation-{mechanism}-{part}-{seed}")
    container:
        AROUND_TRAINING
    # One each: models then train side by side, which is faster than one after the other on more cores.
    threads: 1
    resources:
        processes=1,
        gpu=1,
        mem_mb=growing(16000),
        runtime=1440,
    params:
        settings=ablation_training,
        tokens=subpath(input.tokenizer, parent=True),
        checkpoints=f"{ABLATION_CHECKPOINTS}/{{part}}-{{seed}}",
        launch=LAUNCH,
        threads=threads_each,
        limit=time_limit,
        device=device,
    shell:
        "{params.launch:q} pretrain {input.config:q} {params.settings:q} --tokens {params.tokens:q}"
        " --tokenizer {input.tokenizer:q} --output {output:q}"
        " --checkpoint-dir {params.checkpoints:q} --threads {params.threads:q} {params.limit:q}"
        " --device {params.device:q} > {log:q} 2>&1"


rule ablation_bits:
    input:
        models=lambda wildcards: list(ablation_models(wildcards.part).values()),
        stores=rules.prepare_tokens.output,
        tokenizer=rules.prepare_tokenizer.output[0],
    output:
        PATHS.ablation_bits("{part}"),
    log:
        PATHS.log("ablation-bits-{part}"),
    benchmark:
        PATHS.benchmark("ablation-bits-{part}")
    threads: 1
    resources:
        gpu=1,
        mem_mb=growing(16000),
        runtime=growing(720),
    params:
        models=lambda wildcards: named_words("", ablation_models(wildcards.part)),
        tokens=subpath(input.tokenizer, parent=True),
        length=lambda wildcards: ABLATION.training(wildcards.part)["sequence_tokens"],
        device=device,
    shell:
        "bigbird-dna experiment score-masked {params.models:q} --tokens {params.tokens:q}"
        " --sequence-tokens {params.length:q} -o {output:q} --threads {threads}"
        " --device {params.device:q} > {log:q} 2>&1"


rule ablation_tracks:
    input:
        DATA_FILES["tracks"],
    output:
        PATHS.ablation_bits("tracks").with_suffix(".txt"),
    log:
        PATHS.log("ablation-tracks"),
    benchmark:
        PATHS.benchmark("ablation-tracks")
    # Which tracks are left is known once the data are there: a wrong name stops the run then, not at its end.
    priority: 1
    localrule: True
    params:
        wanted=list(ABLATION.long_range_tracks),
    shell:
        "(sed 1d {input:q} | cut -f 1 > {output:q}; for track in {params.wanted:q}; do"
        ' grep -qxFe "$track" {output:q} || {{ echo "bigbird-dna: error: ablation.long_range_tracks: $track is not a track of"'
        " {input:q}; exit 1; }}; done) > {log:q} 2>&1"


rule ablation_distance:
    input:
        wanted=rules.ablation_tracks.output,
        config=PATHS.stage("chromatin"),
        bins=DATA_FILES["bins"],
        rest=list(DATA_FILES.values()),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        tokenizer=rules.prepare_tokenizer.output[0],
    output:
        directory(PATHS.ablation_model("{mechanism}", "distance", "{seed}")),
    log:
        PATHS.log("ablation-{mechanism}-distance-{seed}"),
    benchmark:
        PATHS.benchmark("ablation-{mechanism}-distance-{seed}")
    container:
        AROUND_TRAINING
    threads: 1
    resources:
        processes=1,
        gpu=1,
        mem_mb=growing(16000),
        runtime=1440,
    params:
        settings=ablation_distance,
        data=subpath(input.bins, parent=True),
        checkpoints=f"{ABLATION_CHECKPOINTS}/distance-{{seed}}",
        launch=LAUNCH,
        threads=threads_each,
        limit=time_limit,
        device=device,
    shell:
        "{params.launch:q} finetune-chromatin {input.config:q} {params.settings:q}"
        " --data {params.data:q} --reference {input.reference:q}"
        " --tokenizer {input.tokenizer:q} --output {output:q}"
        " --checkpoint-dir {params.checkpoints:q} --threads {params.threads:q} {params.limit:q}"
        " --device {params.device:q} > {log:q} 2>&1"


use rule study_predictions as ablation_predictions with:
    input:
        config=PATHS.stage("chromatin-evaluation"),
        bins=DATA_FILES["bins"],
        rest=list(DATA_FILES.values()),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        model=rules.ablation_distance.output[0],
    output:
        PATHS.ablation_model("{mechanism}", "distance", "{seed}").with_name("predictions.npy"),
    log:
        PATHS.log("ablation-predictions-{mechanism}-{seed}"),
    benchmark:
        PATHS.benchmark("ablation-predictions-{mechanism}-{seed}")


rule ablation:
    input:
        bits=expand(PATHS.ablation_bits("{part}"), part=ABLATION_PARTS),
        costs=expand(PATHS.ablation_cost("{mechanism}"), mechanism=ABLATION_NAMES),
        predictions=list(ABLATION_PREDICTIONS.values()),
        labels=rules.train_baseline_chromatin.output.labels if ABLATION_PREDICTIONS else [],
        bins=rules.train_baseline_chromatin.output.bins if ABLATION_PREDICTIONS else [],
        tracks=DATA_FILES["tracks"] if ABLATION_PREDICTIONS else [],
    output:
        multiext(str(PATHS.report / "ablation/ablation"), ".tsv", ".json", ".md", ".svg"),
    log:
        PATHS.log("ablation"),
    benchmark:
        PATHS.benchmark("ablation")
    resources:
        mem_mb=growing(8000),
        runtime=growing(60),
    params:
        bits=lambda wildcards, input: named_words(
            "--", dict(zip(["steps", "time"], input.bits, strict=False))
        )
        + [f"--length={path}" for path in input.bits[2:]],
        costs=named_words("--cost=", {name: PATHS.ablation_cost(name) for name in ABLATION_NAMES}),
        tracks=lambda wildcards, input: (
            named_words("--predictions=", ABLATION_PREDICTIONS)
            + [f"--track={name}" for name in ABLATION.long_range_tracks]
            + ["--labels", input.labels, "--bins", input.bins, "--track-table", input.tracks]
            + [f"--min-positives={CHROMATIN.min_positives_report}"]
            if ABLATION_PREDICTIONS
            else []
        ),
        # With keys of its own a mechanism isn't what was published of its name. Measurements know its options.
        altered=[f"--no-published={one.name}" for one in ABLATION.mechanisms if one.encoder],
        reference=ABLATION.reference,
        directory=subpath(output[0], parent=True),
        version=VERSION,
    shell:
        "bigbird-dna experiment ablation-report {params.bits:q} {params.costs:q} {params.tracks:q}"
        " {params.altered:q} --reference {params.reference:q} -o {params.directory:q} > {log:q} 2>&1"
