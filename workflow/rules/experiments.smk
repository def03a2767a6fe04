"""The papers' experiments: one job per arm and seed of a plan, and one target that compares them.

Targets are the names of experiments: pretraining_study, layer_probes, table5, table6, table7, ablation,
long_range_arena and byte_lm.
"""

# A job finds its arm in the whole configuration, and runs again only if its own settings, a param, change. Each job
# writes the configuration to its own file, because a shared input file would be newer after any change.
os.environ.update(BIGBIRD_DNA_RUN=json.dumps(CONFIG.model_dump(mode="json")))
ARM_FILES = str(PATHS.experiment("{experiment}") / "{arm}")
# Frozen encoders are probed if the study compares a pretrained encoder with random weights.
PROBED = CONFIG.studies("pretrained") and "promoters" in CONFIG.pretraining_study.tasks


wildcard_constraints:
    experiment="|".join(EXPERIMENTS),
    arm="[^/]+",
    data=r"\w+",


for _experiment in EXPERIMENTS:

    rule:
        name:
            _experiment
        input:
            compared(_experiment),
        output:
            [PATHS.report / file for file in find_experiment(_experiment).files],
        log:
            PATHS.log(f"compare-{_experiment}"),
        benchmark:
            PATHS.benchmark(f"compare-{_experiment}")
        resources:
            **job(16000, 240, gpu=int(_experiment == "layer_probes")),  # only probes compute with a model
        params:
            experiment=_experiment,
            settings=compared_settings(_experiment),
            device=device,
            benchmarks=str(Path(PATHS.benchmark("any")).parent),
            directory=subpath(output[0], parent=True),
            version=VERSION,
        shell:
            "printenv BIGBIRD_DNA_RUN > {log:q}.yaml; "
            "bigbird-dna experiment compare {log:q}.yaml {params.experiment:q}"
            " --benchmarks {params.benchmarks:q} -o {params.directory:q} --threads {threads}"
            " --device {params.device:q} > {log:q} 2>&1"


rule arm_data:
    input:
        lambda wildcards: find_experiment(wildcards.experiment).data_inputs(CONFIG),
    output:
        directory(PATHS.experiment("{experiment}") / "data/{data}"),
    log:
        PATHS.log("arm-data-{experiment}-{data}"),
    benchmark:
        PATHS.benchmark("arm-data-{experiment}-{data}")
    resources:
        **job(8000, 240),
    params:
        arm=data_arm,
        settings=data_settings,
    shell:
        "printenv BIGBIRD_DNA_RUN > {log:q}.yaml; bigbird-dna experiment run {log:q}.yaml"
        " {wildcards.experiment:q} {params.arm:q} --part data -o {output:q} > {log:q} 2>&1"


rule arm_cost:
    input:
        tokenizer=PATHS.tokenizer,
    output:
        f"{ARM_FILES}/cost.json",
    log:
        PATHS.log("arm-cost-{experiment}-{arm}"),
    benchmark:
        PATHS.benchmark("arm-cost-{experiment}-{arm}")
    resources:
        **job(16000, 60, gpu=1),
    params:
        settings=lambda wildcards: planned_job(wildcards).settings,
        device=device,
    shell:
        "printenv BIGBIRD_DNA_RUN > {log:q}.yaml; "
        "bigbird-dna experiment run {log:q}.yaml {wildcards.experiment:q} {wildcards.arm:q} --part cost"
        " -o {output:q} --threads {threads} --device {params.device:q} > {log:q} 2>&1"


rule arm:
    input:
        arm_inputs,
        check=ancient(PATHS.gpu_check),
    output:
        model=directory(f"{ARM_FILES}/{{seed}}/model"),
        described=f"{ARM_FILES}/{{seed}}/arm.json",
    log:
        PATHS.log("arm-{experiment}-{arm}-{seed}"),
    benchmark:
        PATHS.benchmark("arm-{experiment}-{arm}-{seed}")
    wildcard_constraints:
        experiment="(?!table5)[^/]+",
    container:
        AROUND_TRAINING
    threads: arm_threads
    resources:
        processes=arm_processes,
        gpu=arm_processes,
        mem_mb=lambda wildcards, attempt: growing(16000 * arm_processes(wildcards))(
            wildcards, attempt
        ),
        runtime=2880,
    params:
        settings=lambda wildcards: planned_job(wildcards).settings,
        launch=LAUNCH,
        threads=threads_each,
        limit=time_limit,
        device=device,
    shell:
        "printenv BIGBIRD_DNA_RUN > {log:q}.yaml; {params.launch:q} experiment run {log:q}.yaml"
        " {wildcards.experiment:q} {wildcards.arm:q} --seed {wildcards.seed:q} -o {output.model:q}"
        " --threads {params.threads:q} {params.limit:q} --device {params.device:q} > {log:q} 2>&1"


# A separate rule, so that profiles can give it as many nodes as the run's own pretraining.
use rule arm as arm_pretraining with:
    wildcard_constraints:
        experiment="table5",


rule arm_predictions:
    input:
        rules.arm.output.model,
        lambda wildcards: planned_job(wildcards).inputs,
    output:
        f"{ARM_FILES}/{{seed}}/predictions.{{kind}}",
    log:
        PATHS.log("arm-predictions-{experiment}-{arm}-{seed}-{kind}"),
    benchmark:
        PATHS.benchmark("arm-predictions-{experiment}-{arm}-{seed}-{kind}")
    wildcard_constraints:
        kind="npy|npz|tsv",
    resources:
        **job(16000, 720, gpu=1),
    params:
        settings=lambda wildcards: CONFIG.chromatin.evaluation.model_dump_json()
        * (wildcards.kind == "npy"),
        device=device,
    shell:
        "printenv BIGBIRD_DNA_RUN > {log:q}.yaml; bigbird-dna experiment run {log:q}.yaml"
        " {wildcards.experiment:q} {wildcards.arm:q} --seed {wildcards.seed:q} --part predictions"
        " -o {output:q} --threads {threads} --device {params.device:q} > {log:q} 2>&1"
