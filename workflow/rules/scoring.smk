"""Scores along the start of the first test contig, as a user would score a genome of their own."""


rule extract_contig:
    input:
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
    output:
        f"{RESULTS}/scores/contig.fa.gz",
    log:
        f"{RESULTS}/logs/extract-contig.log",
    benchmark:
        f"{RESULTS}/benchmarks/extract-contig.tsv"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        contig=CONFIG.genome.test[:1],
        assembly=CONFIG.genome.assembly,
        megabases=CONFIG.scoring.max_megabases,
        version=VERSION,
    shell:
        "bigbird-dna extract {input.reference:q} {params.contig:q} --assembly {params.assembly}"
        " --megabases {params.megabases} -o {output:q} > {log} 2>&1"


rule score_promoters:
    input:
        model=f"{RESULTS}/models/promoter-{CONFIG.scoring.negative_set}",
        fasta=rules.extract_contig.output[0],
    output:
        f"{RESULTS}/scores/promoters.{{format}}",
    log:
        f"{RESULTS}/logs/score-promoters-{{format}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/score-promoters-{{format}}.tsv"
    wildcard_constraints:
        format="tsv|bedgraph",
    threads: 1
    resources:
        gpu=1,
        mem_mb=8000,
        runtime=240,
    params:
        stride=CONFIG.scoring.stride,
        version=VERSION,
    shell:
        "bigbird-dna score-promoters {input.model:q} {input.fasta:q} -o {output:q}"
        " --format {wildcards.format} --stride {params.stride} --threads {threads}"
        " --device $([ {resources.gpu} -gt 0 ] && echo cuda || echo cpu) > {log} 2>&1"
