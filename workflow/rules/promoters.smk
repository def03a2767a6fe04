"""Promoter windows, a model and a k-mer baseline for each negative set, and the control."""

PRETRAINED = rules.pretrain.output if CONFIG.promoters.initial == "pretrained" else []


rule promoter_windows:
    input:
        config=f"{RESULTS}/config/windows.yaml",
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        promoters=rules.prepare_promoters.output.loci,
    output:
        windows=f"{RESULTS}/promoters/windows.parquet",
        labels=f"{RESULTS}/promoters/labels.npz",
        counts=f"{RESULTS}/promoters/windows.json",
    log:
        f"{RESULTS}/logs/promoter-windows.log",
    benchmark:
        f"{RESULTS}/benchmarks/promoter-windows.tsv"
    resources:
        mem_mb=8000,
        runtime=120,
    params:
        directory=subpath(output.windows, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna promoter-windows {input.config:q} --reference {input.reference:q}"
        " --promoters {input.promoters:q} --output {params.directory:q} > {log} 2>&1"


rule finetune_promoter:
    input:
        config=f"{RESULTS}/config/finetuning.yaml",
        windows=rules.promoter_windows.output.windows,
        labels=rules.promoter_windows.output.labels,
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        tokenizer=rules.train_tokenizer.output[0],
        pretrained=PRETRAINED,
    output:
        directory(f"{RESULTS}/models/promoter-{{model}}"),
    log:
        f"{RESULTS}/logs/finetune-promoter-{{model}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/finetune-promoter-{{model}}.tsv"
    priority: 1
    # One: the models then train side by side, which is faster than one after the other on more cores.
    threads: 1
    resources:
        gpu=1,
        mem_mb=16000,
        runtime=1440,
    params:
        task=lambda wildcards: (
            ["--negative-set", CONFIG.promoters.control, "--shuffle-labels"]
            if wildcards.model == "control"
            else ["--negative-set", wildcards.model]
        ),
        start=lambda wildcards, input: (
            ["--pretrained", *input.pretrained] if input.pretrained else []
        ),
        windows=subpath(input.windows, parent=True),
        checkpoints=f"{RESULTS}/checkpoints",
        version=VERSION,
    shell:
        "bigbird-dna finetune-promoter {input.config:q} {params.task:q}"
        " --windows {params.windows:q} --reference {input.reference:q}"
        " --tokenizer {input.tokenizer:q} {params.start:q} --output {output:q}"
        " --checkpoints {params.checkpoints:q} --threads {threads}"
        " --device $([ {resources.gpu} -gt 0 ] && echo cuda || echo cpu) > {log} 2>&1"


rule promoter_baseline:
    input:
        config=f"{RESULTS}/config/baseline.yaml",
        windows=rules.promoter_windows.output.windows,
        labels=rules.promoter_windows.output.labels,
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
    output:
        f"{RESULTS}/promoters/kmer-{{negative_set}}.parquet",
    log:
        f"{RESULTS}/logs/promoter-baseline-{{negative_set}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/promoter-baseline-{{negative_set}}.tsv"
    resources:
        mem_mb=16000,
        runtime=120,
    params:
        windows=subpath(input.windows, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna promoter-baseline {input.config:q} --negative-set {wildcards.negative_set}"
        " --windows {params.windows:q} --reference {input.reference:q} --output {output:q}"
        " > {log} 2>&1"
