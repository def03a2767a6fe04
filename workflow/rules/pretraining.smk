"""Pretraining on one or more processes of one node."""


rule pretrain:
    input:
        config=f"{RESULTS}/config/pretraining.yaml",
        stores=rules.tokenize.output,
        tokenizer=rules.train_tokenizer.output[0],
    output:
        directory(f"{RESULTS}/models/pretrained"),
    log:
        f"{RESULTS}/logs/pretrain.log",
    benchmark:
        f"{RESULTS}/benchmarks/pretrain.tsv"
    threads: max(8, CONFIG.processes)
    resources:
        processes=CONFIG.processes,
        gpu=CONFIG.processes,
        mem_mb=16000 * CONFIG.processes,
        runtime=2880,
    params:
        tokens=subpath(input.tokenizer, parent=True),
        # No output: Snakemake would remove them before it goes on with a killed job.
        checkpoints=f"{RESULTS}/checkpoints",
        version=VERSION,
    shell:
        "if [ {resources.processes} -eq 1 ]; then run=bigbird-dna; else"
        " run='torchrun --standalone --nproc-per-node={resources.processes}"
        " -m bigbird_dna.cli.main'; fi;"
        " threads=$(( {threads} / {resources.processes} ));"
        " $run pretrain {input.config:q} --tokens {params.tokens:q}"
        " --tokenizer {input.tokenizer:q} --output {output:q}"
        " --checkpoints {params.checkpoints:q} --threads $(( threads > 0 ? threads : 1 ))"
        " --device $([ {resources.gpu} -gt 0 ] && echo cuda || echo cpu) > {log} 2>&1"
