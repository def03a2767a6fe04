"""Scores along the start of the first test contig, or of the test sequences: as of a user's own FASTA."""


rule extract_contig:
    input:
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        aliases=ALIASES,
    output:
        PATHS.scored_contig,
    log:
        PATHS.log("extract-contig"),
    benchmark:
        PATHS.benchmark("extract-contig")
    resources:
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        contig=CONFIG.genome.test[:1],
        # Of a pattern the first contig that isn't held out otherwise.
        but=lambda wildcards: [
            f"--exclude={name}" for name in [*CONFIG.genome.exclude, *CONFIG.genome.valid]
        ],
        naming=NAMING,
        megabases=CONFIG.example_scan.max_megabases,
    shell:
        "bigbird-dna prepare contig {input.reference:q} {params.contig:q} {params.but:q} {params.naming:q}"
        " --megabases {params.megabases:q} -o {output:q} > {log:q} 2>&1"


rule score_promoters:
    input:
        model=PATHS.promoter_model(CONFIG.example_scan.negative_set),
        fasta=PATHS.test_sequences if SEQUENCES else rules.extract_contig.output[0],
    output:
        PATHS.promoter_scores("{format}"),
    log:
        PATHS.log("score-promoters-{format}"),
    benchmark:
        PATHS.benchmark("score-promoters-{format}")
    wildcard_constraints:
        format="tsv|bedgraph",
    threads: 1
    resources:
        gpu=1,
        mem_mb=growing(8000),
        runtime=growing(240),
    params:
        stride=CONFIG.example_scan.stride,
        # Sequences are read as they are given.
        strand=["--strand=+"] if SEQUENCES else [],
        piece=[],
        device=DEVICE,
    shell:
        "bigbird-dna score-promoters {input.model:q} {input.fasta:q} -o {output:q}"
        " --format {wildcards.format:q} --stride {params.stride:q} {params.strand:q} {params.piece:q}"
        " --threads {threads} --device {params.device:q} > {log:q} 2>&1"
