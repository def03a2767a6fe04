"""The tokenizer, the genome as tokens, and what the tokens are like."""


rule train_tokenizer:
    input:
        config=PATHS.stage("tokens"),
        reference=CORPUS,
        indices=multiext(str(CORPUS), ".fai", ".gzi"),
        aliases=ALIASES,
    output:
        PATHS.tokenizer,
    log:
        PATHS.log("prepare-tokenizer"),
    benchmark:
        PATHS.benchmark("prepare-tokenizer")
    resources:
        # SentencePiece holds the whole corpus, about 80 MB a megabase.
        mem_mb=growing(round(1000 + 100 * CONFIG.tokens.corpus_megabases)),
        runtime=growing(240),
    params:
        aliases=SET_ALIASES,
    shell:
        "bigbird-dna prepare tokenizer {input.config:q} {params.aliases:q} --reference {input.reference:q}"
        " -o {output:q} > {log:q} 2>&1"


rule tokenize:
    input:
        config=PATHS.stage("tokens"),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        aliases=ALIASES,
        tokenizer=rules.train_tokenizer.output[0],
    output:
        directory(expand(PATHS.token_store("{split}"), split=["train", "valid", "test"])),
    log:
        PATHS.log("tokenize"),
    benchmark:
        PATHS.benchmark("tokenize")
    threads: 8
    resources:
        mem_mb=growing(8000),
        runtime=growing(480),
    params:
        directory=subpath(input.tokenizer, parent=True),
        aliases=SET_ALIASES,
    shell:
        "bigbird-dna prepare tokens {input.config:q} {params.aliases:q} --reference {input.reference:q}"
        " --tokenizer {input.tokenizer:q} -o {params.directory:q} --threads {threads} > {log:q} 2>&1"


rule tokenizer_statistics:
    input:
        config=PATHS.stage("tokens"),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        aliases=ALIASES,
        tokenizer=rules.train_tokenizer.output[0],
        promoters=(
            rules.prepare_promoters.output.loci if CONFIG.has_promoters and not SEQUENCES else []
        ),
    output:
        PATHS.token_statistics,
    log:
        PATHS.log("tokenizer-statistics"),
    benchmark:
        PATHS.benchmark("tokenizer-statistics")
    threads: 2
    resources:
        mem_mb=growing(4000),
        runtime=growing(240),
    params:
        # Without promoters none of another run's: the command would look in its default results.
        promoters=lambda wildcards, input: (
            ["--promoters", input.promoters]
            if input.promoters
            else ["--set", f"results={json.dumps(CONFIG.results, ensure_ascii=False)}"]
        ),
        aliases=SET_ALIASES,
        version=VERSION,
    shell:
        "bigbird-dna prepare token-stats {input.config:q} {params.aliases:q} --reference {input.reference:q}"
        " --tokenizer {input.tokenizer:q} {params.promoters:q} -o {output:q}"
        " --threads {threads} > {log:q} 2>&1"
