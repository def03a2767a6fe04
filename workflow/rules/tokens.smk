"""The tokenizer, the genome as tokens, and what the tokens are like."""


rule train_tokenizer:
    input:
        config=f"{RESULTS}/config/tokens.yaml",
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
    output:
        f"{RESULTS}/tokens/tokenizer.model",
    log:
        f"{RESULTS}/logs/train-tokenizer.log",
    benchmark:
        f"{RESULTS}/benchmarks/train-tokenizer.tsv"
    resources:
        # SentencePiece holds the whole corpus, about 80 MB a megabase.
        mem_mb=round(1000 + 100 * CONFIG.tokens.corpus_megabases),
        runtime=240,
    params:
        version=VERSION,
    shell:
        "bigbird-dna train-tokenizer {input.config:q} --reference {input.reference:q}"
        " -o {output:q} > {log} 2>&1"


rule tokenize:
    input:
        config=f"{RESULTS}/config/tokens.yaml",
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        tokenizer=rules.train_tokenizer.output[0],
    output:
        directory(expand(f"{RESULTS}/tokens/{{split}}", split=["train", "valid", "test"])),
    log:
        f"{RESULTS}/logs/tokenize.log",
    benchmark:
        f"{RESULTS}/benchmarks/tokenize.tsv"
    threads: 8
    resources:
        mem_mb=8000,
        runtime=480,
    params:
        directory=subpath(input.tokenizer, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna tokenize {input.config:q} --reference {input.reference:q}"
        " --tokenizer {input.tokenizer:q} -o {params.directory:q} --threads {threads} > {log} 2>&1"


rule tokenizer_statistics:
    input:
        config=f"{RESULTS}/config/tokens.yaml",
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        tokenizer=rules.train_tokenizer.output[0],
        promoters=rules.prepare_promoters.output.loci if PROMOTERS else [],
    output:
        f"{RESULTS}/tokens/statistics.json",
    log:
        f"{RESULTS}/logs/tokenizer-statistics.log",
    benchmark:
        f"{RESULTS}/benchmarks/tokenizer-statistics.tsv"
    threads: 2
    resources:
        mem_mb=4000,
        runtime=240,
    params:
        # Without promoters none of another run's: the command would look in its default results.
        promoters=lambda wildcards, input: (
            ["--promoters", input.promoters]
            if input.promoters
            else ["--set", f"results={json.dumps(RESULTS)}"]
        ),
        version=VERSION,
    shell:
        "bigbird-dna tokenizer-statistics {input.config:q} --reference {input.reference:q}"
        " --tokenizer {input.tokenizer:q} {params.promoters:q} -o {output:q}"
        " --threads {threads} > {log} 2>&1"
