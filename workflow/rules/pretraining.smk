"""Pretraining on one or more processes of one node, and what it is judged beside."""


rule pretrain:
    input:
        config=PATHS.stage("pretraining"),
        stores=rules.tokenize.output,
        tokenizer=rules.train_tokenizer.output[0],
    output:
        directory(PATHS.pretrained),
    log:
        PATHS.log("pretrain"),
    benchmark:
        PATHS.benchmark("pretrain")
    threads: max(8, CONFIG.processes)
    resources:
        processes=CONFIG.processes,
        gpu=CONFIG.processes,
        mem_mb=16000 * CONFIG.processes,
        runtime=2880,
    params:
        tokens=subpath(input.tokenizer, parent=True),
        # No output: Snakemake would remove them before it goes on with a killed job.
        checkpoints=str(PATHS.checkpoints),
        device=DEVICE,
        version=VERSION,
    shell:
        "if [ {resources.processes} -eq 1 ]; then run=bigbird-dna; else"
        " run='torchrun --standalone --nproc-per-node={resources.processes}"
        " -m bigbird_dna.cli.main'; fi;"
        " threads=$(( {threads} / {resources.processes} ));"
        " $run pretrain {input.config:q} --tokens {params.tokens:q}"
        " --tokenizer {input.tokenizer:q} --output {output:q}"
        " --checkpoints {params.checkpoints:q} --threads $(( threads > 0 ? threads : 1 ))"
        " --device {params.device:q} > {log:q} 2>&1"


rule evaluate_pretraining:
    input:
        model=rules.pretrain.output[0],
        stores=rules.tokenize.output,
        tokenizer=rules.train_tokenizer.output[0],
    output:
        PATHS.pretraining_bits,
    log:
        PATHS.log("evaluate-pretraining"),
    benchmark:
        PATHS.benchmark("evaluate-pretraining")
    resources:
        gpu=1,
        # n-grams over tokens stop at 4 GB, tables over bases take 1.
        mem_mb=12000,
        runtime=480,
    params:
        tokens=subpath(input.tokenizer, parent=True),
        order=CONFIG.pretraining.ngram_order,
        length=CONFIG.pretraining.sequence_tokens,
        device=DEVICE,
        version=VERSION,
    shell:
        "bigbird-dna evaluate-pretraining {input.model:q} --tokens {params.tokens:q}"
        " --sequence-tokens {params.length:q} --ngram-order {params.order:q} -o {output:q} --device {params.device:q} > {log:q} 2>&1"
