"""Reference and promoters (simulated, downloaded or user-supplied), tokenizer and tokens of the genome."""


# The configuration keys that a stage reads: a change of any other key does not run the stage again.
rule stage_config:
    output:
        PATHS.stage("{stage}"),
    log:
        PATHS.log("config-{stage}"),
    benchmark:
        PATHS.benchmark("config-{stage}")
    wildcard_constraints:
        stage="|".join(STAGES),
    localrule: True
    params:
        text=lambda wildcards: stage_text(CONFIG, wildcards.stage),
    shell:
        "printf '%s\\n' {params.text:q} > {output:q} 2> {log:q}"


rule simulate:
    output:
        reference=PATHS.simulated_reference,
        promoters=PATHS.simulated_promoters,
        tracks=PATHS.simulated_tracks,
        peaks=directory(PATHS.simulated_peaks),
        variants=PATHS.simulated_variants,
    log:
        PATHS.log("simulate"),
    benchmark:
        PATHS.benchmark("simulate")
    resources:
        **job(2000, 30),
    params:
        directory=subpath(output.reference, parent=True),
        seed=CONFIG.seed,
        megabases=CONFIG.simulation.megabases,
    shell:
        "bigbird-dna simulate {params.directory:q} --seed {params.seed:q}"
        " --megabases {params.megabases:q} > {log:q} 2>&1"


rule prepare_fetch:
    output:
        PATHS.download("{file}"),
    log:
        PATHS.log("prepare-fetch-{file}"),
    benchmark:
        PATHS.benchmark("prepare-fetch-{file}")
    localrule: True
    resources:
        # Not a param: the same file in another directory is no reason to run everything again.
        # Quoted here, because the option is absent without a directory.
        data_dir=shlex.quote(f"--local-data={CONFIG.data_dir}") if CONFIG.data_dir else "",
    params:
        key=lambda wildcards: DOWNLOADS[wildcards.file],
    shell:
        "bigbird-dna prepare fetch {params.key:q} -o {output:q} {resources.data_dir} > {log:q} 2>&1"


if CONFIG.pieces:

    rule prepare_pieces:
        input:
            config=PATHS.stage("pieces"),
            files=[*PIECES.values()],
        output:
            indexed(PATHS.pieces / "genome.fa.gz").values(),
            loci=PATHS.pieces / "promoters.tsv",
            other_loci=PATHS.pieces / "other_promoters.tsv",
            ignored=PATHS.pieces / "ignore.bed",
            counts=PATHS.pieces / "pieces.json",
        log:
            PATHS.log("prepare-pieces"),
        benchmark:
            PATHS.benchmark("prepare-pieces")
        resources:
            **job(4000, 60),
            # Not a param, as in prepare_fetch.
            data_dir=shlex.quote(f"--set=data_dir={CONFIG.data_dir}") if CONFIG.data_dir else "",
        params:
            directory=subpath(output.counts, parent=True),
            results=CONFIG.results,
            script=PIECES_SCRIPT,
        shell:
            "python {params.script:q} {input.config:q} --set results={params.results:q}"
            " {resources.data_dir} -o {params.directory:q} > {log:q} 2>&1"


rule prepare_reference:
    input:
        genome=INPUTS.files.get("reference", []),
        aliases=ALIASES,
    output:
        fasta=PATHS.reference,
        indices=GENOME["indices"],
    log:
        PATHS.log("prepare-reference"),
    benchmark:
        PATHS.benchmark("prepare-reference")
    resources:
        **job(2000, 60),
    params:
        naming=NAMING,
    shell:
        "bigbird-dna prepare reference {input.genome:q} -o {output.fasta:q}"
        " {params.naming:q} > {log:q} 2>&1"


rule prepare_promoters:
    input:
        **GENOME,
        promoters=INPUTS.files.get("promoters", []),
        chain=INPUTS.files.get("chain", []),
        aliases=ALIASES,
    output:
        loci=PATHS.promoters,
        counts=PATHS.promoter_counts,
    log:
        PATHS.log("prepare-promoters"),
    benchmark:
        PATHS.benchmark("prepare-promoters")
    resources:
        **job(2000, 30),
    params:
        naming=NAMING,
        lift=lambda wildcards, input: (
            ["--chain", input.chain, "--from-assembly", INPUTS.sources["chain"].from_assembly]
            if input.chain
            else []
        ),
    shell:
        "bigbird-dna prepare promoters {input.promoters:q} --reference {input.reference:q}"
        " {params.naming:q} {params.lift:q} -o {output.loci:q} > {log:q} 2>&1"


# Of a run without a dense model, the example scan is of one contig, or a part of it: for a pattern, of the first
# contig that is neither excluded nor in another split.
SCANNED_PART = [
    *(f"--only={name}" for name in CONFIG.genome.test[: None if START_SITES else 1]),
    *(f"--exclude={name}" for name in CONFIG.genome.exclude),
    *(f"--exclude={name}" for name in ([] if START_SITES else CONFIG.genome.valid)),
    *([] if START_SITES else [f"--megabases={CONFIG.example_scan.max_megabases or 1e6}"]),
]


rule prepare_test:
    input:
        **GENOME,
        aliases=ALIASES,
    output:
        **indexed(PATHS.test_sequence),
    log:
        PATHS.log("prepare-test"),
    benchmark:
        PATHS.benchmark("prepare-test")
    resources:
        **job(4000, 30),
    params:
        part=lambda wildcards: SCANNED_PART,  # names of contigs may have braces
        naming=NAMING,
    shell:
        "bigbird-dna prepare reference {input.reference:q} {params.part:q} {params.naming:q}"
        " -o {output.reference:q} > {log:q} 2>&1"


rule prepare_tokenizer:
    input:
        **GENOME,
        config=PATHS.stage("tokens"),
        aliases=ALIASES,
    output:
        PATHS.tokenizer,
    log:
        PATHS.log("prepare-tokenizer"),
    benchmark:
        PATHS.benchmark("prepare-tokenizer")
    resources:
        # SentencePiece keeps the whole corpus in memory, about 80 MB per megabase.
        **job(round(1000 + 100 * CONFIG.tokens.corpus_megabases), 240),
    params:
        aliases=SET_ALIASES,
    shell:
        "bigbird-dna prepare tokenizer {input.config:q} {params.aliases:q} --reference {input.reference:q}"
        " -o {output:q} > {log:q} 2>&1"


rule prepare_tokens:
    input:
        **GENOME,
        config=PATHS.stage("tokens"),
        aliases=ALIASES,
        tokenizer=PATHS.tokenizer,
    output:
        [directory(store) for store in TOKENS["stores"]],
        statistics=PATHS.token_statistics,
    log:
        PATHS.log("prepare-tokens"),
    benchmark:
        PATHS.benchmark("prepare-tokens")
    threads: 8
    resources:
        **job(8000, 480),
    params:
        directory=subpath(output.statistics, parent=True),
        aliases=SET_ALIASES,
    shell:
        "bigbird-dna prepare tokens {input.config:q} {params.aliases:q} --reference {input.reference:q}"
        " --tokenizer {input.tokenizer:q} -o {params.directory:q} --threads {threads} > {log:q} 2>&1"
