"""What pretraining buys: a model for each start, share of the examples and seed, their report, and probes."""

CAPTIONS = str(files("bigbird_dna.reporting") / "captions")


wildcard_constraints:
    start="|".join(STUDY_STARTS),
    share=r"[\d.]+",


STUDIED = {task: study_models(task) for task in STUDY_TASKS}
# A model may be a task's own once more, or another's: no two trainings share checkpoints.
STUDY_CHECKPOINTS = str(PATHS.checkpoints / "study")
# Frozen encoders are probed where there is a pretrained one to be told from fresh weights.
PROBED = bool(STUDIED["promoters"]) and CONFIG.studies("pretrained")


rule study_promoter:
    input:
        config=PATHS.stage("promoters"),
        windows=PATHS.windows / "windows.parquet",
        labels=PATHS.windows / "labels.npz",
        reference=WINDOWS_REFERENCE,
        indices=multiext(str(WINDOWS_REFERENCE), ".fai", ".gzi"),
        tokenizer=rules.prepare_tokenizer.output[0],
        pretrained=lambda wildcards: (
            rules.pretrain.output if wildcards.start == "pretrained" else []
        ),
    output:
        directory(PATHS.study_model("promoters", "{start}", "{share}", "{seed}")),
    log:
        PATHS.log("study-promoters-{start}-{share}-{seed}"),
    benchmark:
        PATHS.benchmark("study-promoters-{start}-{share}-{seed}")
    container:
        AROUND_TRAINING
    # One each: models then train side by side, which is faster than one after the other on more cores.
    threads: CONFIG.promoters.num_gpus
    resources:
        processes=CONFIG.promoters.num_gpus,
        gpu=CONFIG.promoters.num_gpus,
        mem_mb=growing(16000 * CONFIG.promoters.num_gpus),
        runtime=1440,
    params:
        settings=lambda wildcards: study_settings(wildcards, "promoters"),
        negative_set=CONFIG.pretraining_study.negative_set if CONFIG.pretraining_study else "",
        start=lambda wildcards, input: (
            ["--pretrained", *input.pretrained] if input.pretrained else []
        ),
        windows=subpath(input.windows, parent=True),
        checkpoints=f"{STUDY_CHECKPOINTS}/promoters/{{start}}-{{share}}-{{seed}}",
        launch=LAUNCH,
        threads=threads_each,
        limit=time_limit,
        device=device,
    shell:
        "{params.launch:q} finetune-promoter {input.config:q} --negative-set {params.negative_set:q}"
        " {params.settings:q} --windows {params.windows:q} --reference {input.reference:q}"
        " --tokenizer {input.tokenizer:q} {params.start:q} --output {output:q}"
        " --checkpoint-dir {params.checkpoints:q} --threads {params.threads:q} {params.limit:q}"
        " --device {params.device:q} > {log:q} 2>&1"


rule study_chromatin:
    input:
        config=PATHS.stage("chromatin"),
        bins=DATA_FILES["bins"],
        rest=list(DATA_FILES.values()),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        tokenizer=rules.prepare_tokenizer.output[0],
        pretrained=lambda wildcards: (
            rules.pretrain.output if wildcards.start == "pretrained" else []
        ),
    output:
        directory(PATHS.study_model("chromatin", "{start}", "{share}", "{seed}")),
    log:
        PATHS.log("study-chromatin-{start}-{share}-{seed}"),
    benchmark:
        PATHS.benchmark("study-chromatin-{start}-{share}-{seed}")
    container:
        AROUND_TRAINING
    threads: CONFIG.chromatin.num_gpus
    resources:
        processes=CONFIG.chromatin.num_gpus,
        gpu=CONFIG.chromatin.num_gpus,
        mem_mb=growing(16000 * CONFIG.chromatin.num_gpus),
        runtime=2880,
    params:
        settings=lambda wildcards: study_settings(wildcards, "chromatin"),
        start=lambda wildcards, input: (
            ["--pretrained", *input.pretrained] if input.pretrained else []
        ),
        data=subpath(input.bins, parent=True),
        checkpoints=f"{STUDY_CHECKPOINTS}/chromatin/{{start}}-{{share}}-{{seed}}",
        launch=LAUNCH,
        threads=threads_each,
        limit=time_limit,
        device=device,
    shell:
        "{params.launch:q} finetune-chromatin {input.config:q} {params.settings:q}"
        " --data {params.data:q} --reference {input.reference:q}"
        " --tokenizer {input.tokenizer:q} {params.start:q} --output {output:q}"
        " --checkpoint-dir {params.checkpoints:q} --threads {params.threads:q} {params.limit:q}"
        " --device {params.device:q} > {log:q} 2>&1"


rule study_predictions:
    input:
        config=PATHS.stage("chromatin-evaluation"),
        bins=DATA_FILES["bins"],
        rest=list(DATA_FILES.values()),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        model=rules.study_chromatin.output[0],
    output:
        PATHS.study_predictions("{start}", "{share}", "{seed}"),
    log:
        PATHS.log("study-predictions-{start}-{share}-{seed}"),
    benchmark:
        PATHS.benchmark("study-predictions-{start}-{share}-{seed}")
    threads: 1
    resources:
        gpu=1,
        mem_mb=growing(16000),
        runtime=growing(720),
    params:
        data=subpath(input.bins, parent=True),
        device=device,
    shell:
        "bigbird-dna evaluate test-bins {input.config:q} {input.model:q} --data {params.data:q}"
        " --reference {input.reference:q} -o {output:q} --threads {threads}"
        " --device {params.device:q} > {log:q} 2>&1"


rule study_report:
    input:
        models=[model for models in STUDIED.values() for model in models],
        predictions=[model.with_name("predictions.npy") for model in STUDIED["chromatin"]],
        labels=rules.train_baseline_chromatin.output.labels if STUDIED["chromatin"] else [],
        pretrained=rules.pretrain.output if CONFIG.studies("pretrained") else [],
    output:
        words=report(
            PATHS.report / "study.txt",
            category="What pretraining buys",
            caption=f"{CAPTIONS}/study_words.rst",
            labels={"figure": "in words"},
        ),
        shares=report(
            PATHS.report / "study.svg",
            category="What pretraining buys",
            caption=f"{CAPTIONS}/study.rst",
            labels={"figure": "AUROC and the number of examples"},
        ),
        steps=report(
            PATHS.report / "study_steps.svg",
            category="What pretraining buys",
            caption=f"{CAPTIONS}/study_steps.rst",
            labels={"figure": "AUROC while fine-tuning"},
        ),
        table=report(
            PATHS.report / "study.tsv",
            category="What pretraining buys",
            caption=f"{CAPTIONS}/study_table.rst",
            labels={"figure": "all starts, table"},
        ),
    log:
        PATHS.log("study-report"),
    benchmark:
        PATHS.benchmark("study-report")
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        labels=lambda wildcards, input: ["--labels", input.labels] if input.labels else [],
        pretrained=lambda wildcards, input: (
            ["--pretrained", *input.pretrained] if input.pretrained else []
        ),
        benchmarks=str(Path(PATHS.benchmark("study-report")).parent),
        directory=subpath(output.table, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna experiment pretraining-study {input.models:q} {params.labels:q} {params.pretrained:q}"
        " --benchmarks {params.benchmarks:q} -o {params.directory:q} > {log:q} 2>&1"


rule probe_promoters:
    input:
        config=PATHS.stage("promoters"),
        windows=PATHS.windows / "windows.parquet",
        labels=PATHS.windows / "labels.npz",
        reference=WINDOWS_REFERENCE,
        indices=multiext(str(WINDOWS_REFERENCE), ".fai", ".gzi"),
        pretrained=rules.pretrain.output,
    output:
        figure=report(
            PATHS.report / "probes.svg",
            category="What pretraining buys",
            caption=f"{CAPTIONS}/probes.rst",
            labels={"figure": "probes of the layers"},
        ),
        table=report(
            PATHS.report / "probes.tsv",
            category="What pretraining buys",
            caption=f"{CAPTIONS}/probes.rst",
            labels={"figure": "probes, table"},
        ),
    log:
        PATHS.log("evaluate-probe"),
    benchmark:
        PATHS.benchmark("evaluate-probe")
    threads: 1
    resources:
        gpu=1,
        mem_mb=growing(16000),
        runtime=growing(240),
    params:
        negative_set=CONFIG.pretraining_study.negative_set if CONFIG.pretraining_study else "",
        windows=subpath(input.windows, parent=True),
        directory=subpath(output.table, parent=True),
        device=device,
    shell:
        "bigbird-dna evaluate probe {input.config:q} --negative-set {params.negative_set:q}"
        " --windows {params.windows:q} --reference {input.reference:q}"
        " --pretrained {input.pretrained:q} -o {params.directory:q} --threads {threads}"
        " --device {params.device:q} > {log:q} 2>&1"
