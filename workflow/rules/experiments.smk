"""The papers' experiments: a job for each arm and seed of a plan, and a target that compares them.

Targets are the experiments' names: pretraining_study, layer_probes, table5, table6, table7, ablation,
long_range_arena and byte_lm.
"""

import functools

from bigbird_dna.papers.experiments.experiment import EXPERIMENTS, find_experiment, plan

# A job looks up its arm in the whole configuration, and is run again where its own settings, among the params, change:
# that file is written by the job itself, since one that others depend on would be newer for any change.
os.environ["BIGBIRD_DNA_RUN"] = json.dumps(CONFIG.model_dump(mode="json"))
WITH_CONFIG = "printf '%s\\n' \"$BIGBIRD_DNA_RUN\" > {log:q}.yaml; "
ARM_FILES = str(PATHS.experiment("{experiment}") / "{arm}")
# Frozen encoders are probed where there is a pretrained one to be told from fresh weights.
PROBED = CONFIG.studies("pretrained") and "promoters" in CONFIG.pretraining_study.tasks


@functools.cache
def planned(experiment):
    """The jobs of an experiment by arm and seed, checked as a whole: before the first of them."""
    try:
        jobs = plan(find_experiment(experiment), CONFIG)
    except BigBirdDnaError as error:
        sys.exit(f"bigbird-dna: error: {error}")
    return {(job.arm.name, str(job.seed)): job for job in jobs}


def planned_job(wildcards):
    """The job of a directory; of an arm's own files its first."""
    jobs = planned(wildcards.experiment)
    own = [job for (arm, _), job in jobs.items() if arm == wildcards.arm]
    return jobs.get((wildcards.arm, wildcards.get("seed")), own[0] if own else None)


def arm_inputs(wildcards):
    """What a job reads; an arm that isn't in the plan has no file."""
    job = planned_job(wildcards)
    return job.inputs if job else PATHS.experiment(f"no-arm-{wildcards.arm}")


def arm_processes(wildcards):
    """Processes of a training: those of pretraining, or of the task; comparators have one."""
    job = planned_job(wildcards)
    if job is None or not job.is_model or job.experiment == "ablation":
        return 1
    return {
        "pretraining": CONFIG.num_gpus,
        "promoters": CONFIG.promoters.num_gpus,
        "chromatin": CONFIG.chromatin.num_gpus,
    }.get(job.arm.task, 1)


def arm_threads(wildcards):
    """One each: models then train side by side. What is trained alone has more."""
    job, processes = planned_job(wildcards), arm_processes(wildcards)
    alone = job is not None and (
        job.arm.task == "bytes" or (job.arm.task == "pretraining" and job.experiment != "ablation")
    )
    return max(8, processes) if alone else processes


def data_arm(wildcards):
    """An arm that has a data set, which its command is told by."""
    jobs = planned(wildcards.experiment).values()
    return next((job.arm.name for job in jobs if job.arm.data == wildcards.data), "none")


def data_settings(wildcards):
    """What decides a data set beside its inputs."""
    found = find_experiment(wildcards.experiment).data_config(CONFIG, wildcards.data)
    return found.model_dump_json()


def compared(experiment):
    """An input function: all files that an experiment compares."""

    def inputs(wildcards):
        jobs = planned(experiment).values()
        return [path for job in jobs for path in job.outputs] + [
            *find_experiment(experiment).inputs(CONFIG)
        ]

    return inputs


def compared_settings(experiment):
    """What a report is made of beside files: which arms and seeds, and which tracks count."""

    def settings(wildcards):
        jobs = [f"{job.arm.name}/{job.seed}" for job in planned(experiment).values()]
        return f"{CONFIG.chromatin.min_positives_report} {' '.join(jobs)}"

    return settings


wildcard_constraints:
    experiment="|".join(EXPERIMENTS),
    arm="[^/]+",
    data=r"\w+",


for _experiment in [name for name in EXPERIMENTS if name != "layer_probes"]:

    rule:
        name:
            _experiment
        input:
            compared(_experiment),
        output:
            [report_item(PATHS.report / file) for file in find_experiment(_experiment).files],
        log:
            PATHS.log(f"compare-{_experiment}"),
        benchmark:
            PATHS.benchmark(f"compare-{_experiment}")
        threads: 1
        resources:
            **job(16000, 240),
        params:
            experiment=_experiment,
            settings=compared_settings(_experiment),
            benchmarks=str(Path(PATHS.benchmark("any")).parent),
            directory=subpath(output[0], parent=True),
            version=VERSION,
        shell:
            WITH_CONFIG + "bigbird-dna experiment compare {log:q}.yaml {params.experiment:q}"
            " --benchmarks {params.benchmarks:q} -o {params.directory:q} --threads {threads} > {log:q} 2>&1"


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
        WITH_CONFIG
        + "bigbird-dna experiment run {log:q}.yaml {wildcards.experiment:q} {params.arm:q} --part data"
        " -o {output:q} > {log:q} 2>&1"


rule arm_cost:
    input:
        tokenizer=PATHS.tokenizer,
    output:
        f"{ARM_FILES}/cost.json",
    log:
        PATHS.log("arm-cost-{experiment}-{arm}"),
    benchmark:
        PATHS.benchmark("arm-cost-{experiment}-{arm}")
    threads: 1
    resources:
        **job(16000, 60),
        gpu=1,
    params:
        settings=lambda wildcards: planned_job(wildcards).settings,
        device=device,
    shell:
        WITH_CONFIG
        + "bigbird-dna experiment run {log:q}.yaml {wildcards.experiment:q} {wildcards.arm:q} --part cost"
        " -o {output:q} --threads {threads} --device {params.device:q} > {log:q} 2>&1"


rule arm:
    input:
        arm_inputs,
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
        WITH_CONFIG
        + "{params.launch:q} experiment run {log:q}.yaml {wildcards.experiment:q} {wildcards.arm:q}"
        " --seed {wildcards.seed:q} -o {output.model:q} --threads {params.threads:q} {params.limit:q}"
        " --device {params.device:q} > {log:q} 2>&1"


# As many nodes as the run's own pretraining may have.
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
    threads: 1
    resources:
        **job(16000, 720),
        gpu=1,
    params:
        settings=lambda wildcards: CONFIG.chromatin.evaluation.model_dump_json()
        * (wildcards.kind == "npy"),
        device=device,
    shell:
        WITH_CONFIG
        + "bigbird-dna experiment run {log:q}.yaml {wildcards.experiment:q} {wildcards.arm:q}"
        " --seed {wildcards.seed:q} --part predictions -o {output:q} --threads {threads}"
        " --device {params.device:q} > {log:q} 2>&1"


rule layer_probes:
    input:
        compared("layer_probes"),
    output:
        [report_item(PATHS.report / file) for file in find_experiment("layer_probes").files],
    log:
        PATHS.log("compare-layer_probes"),
    benchmark:
        PATHS.benchmark("compare-layer_probes")
    threads: 1
    resources:
        **job(16000, 240),
        gpu=1,
    params:
        settings=lambda wildcards: stage_text(CONFIG, "promoters"),
        directory=subpath(output[0], parent=True),
        device=device,
    shell:
        WITH_CONFIG
        + "bigbird-dna experiment compare {log:q}.yaml layer_probes -o {params.directory:q}"
        " --threads {threads} --device {params.device:q} > {log:q} 2>&1"
