"""The papers' experiments: one job per arm, and one target that compares them, with the name of the experiment."""

# A job finds its arm in the whole configuration, and runs again only if its own settings, a param, change. Each job
# writes the configuration to its own file, because a shared input file would be newer after any change.
os.environ.update(BIGBIRD_DNA_RUN=json.dumps(CONFIG.model_dump(mode="json")))


wildcard_constraints:
    experiment="|".join(EXPERIMENTS),
    arm="[^/]+",


for _experiment in EXPERIMENTS:

    rule:
        name:
            _experiment
        input:
            compared(_experiment),
        output:
            [PATHS.report / file for file in find_experiment(_experiment).FILES],
        log:
            PATHS.log(f"compare-{_experiment}"),
        benchmark:
            PATHS.benchmark(f"compare-{_experiment}")
        resources:
            **job(16000, 240),
        params:
            experiment=_experiment,
            settings=compared_settings(_experiment),
            directory=subpath(output[0], parent=True),
            version=VERSION,
        shell:
            "printenv BIGBIRD_DNA_RUN > {log:q}.yaml; "
            "bigbird-dna experiment run {params.experiment:q} {log:q}.yaml --compare"
            " -o {params.directory:q} --threads {threads} > {log:q} 2>&1"


rule arm:
    input:
        arm_inputs,
    output:
        PATHS.experiment("{experiment}") / "{arm}/arm.json",
    log:
        PATHS.log("arm-{experiment}-{arm}"),
    benchmark:
        PATHS.benchmark("arm-{experiment}-{arm}")
    wildcard_constraints:
        experiment="(?!table5)[^/]+",
    container:
        AROUND_TRAINING
    threads: arm_threads
    resources:
        processes=arm_processes,
        gpu=arm_gpus,
        mem_mb=lambda wildcards, attempt: growing(16000 * arm_processes(wildcards))(
            wildcards, attempt
        ),
        runtime=2880,
    params:
        settings=arm_settings,
        launch=LAUNCH,
        threads=threads_each,
        limit=time_limit,
        device=device,
    shell:
        "printenv BIGBIRD_DNA_RUN > {log:q}.yaml; {params.launch:q} experiment run"
        " {wildcards.experiment:q} {log:q}.yaml --arm {wildcards.arm:q}"
        " --threads {params.threads:q} {params.limit:q} --device {params.device:q} > {log:q} 2>&1"


# A separate rule, so that profiles can give it as many nodes as the run's own pretraining.
use rule arm as arm_pretraining with:
    wildcard_constraints:
        experiment="table5",
