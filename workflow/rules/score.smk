"""Scores of the test contigs, the start of the first one, or the test sequences; and variant effects."""

if START_SITES:
    SCANNING_MODEL = PATHS.start_sites_model
else:
    SCANNING_MODEL = PATHS.promoter_model(CONFIG.example_scan.negative_set)


rule score_promoters:
    input:
        model=SCANNING_MODEL,
        fasta=PATHS.test_sequence,
    output:
        PATHS.promoter_scores,
    log:
        PATHS.log("score-promoters"),
    benchmark:
        PATHS.benchmark("score-promoters")
    resources:
        **job(8000, 240, gpu=1),
    params:
        stride=[] if START_SITES else [f"--stride={CONFIG.example_scan.stride}"],
        device=device,
    shell:
        "bigbird-dna score-promoters {input.model:q} {input.fasta:q} -o {output:q}"
        " --format tsv {params.stride:q}"
        " --threads {threads} --device {params.device:q} > {log:q} 2>&1"


rule score_variants:
    input:
        **GENOME,
        model=CHROMATIN_MODEL,
        variants=INPUTS.files.get("variants", []),
        aliases=ALIASES,
    output:
        PATHS.scored_variants(),
    log:
        PATHS.log("score-variants"),
    benchmark:
        PATHS.benchmark("score-variants")
    priority: 1
    # One thread: the job need not wait for several free cores. Use --set-threads for a large VCF.
    resources:
        **job(16000, 720, gpu=1),
    params:
        contigs=lambda wildcards: [
            f"--contig={contig}" for contig in simulated_test_contigs(CONFIG)
        ],
        aliases=given("aliases"),
        device=device,
    shell:
        "bigbird-dna score-variants {input.model:q} {input.variants:q} {params.contigs:q}"
        " --reference {input.reference:q} {params.aliases:q} --tracks '*' -o {output:q}"
        " --threads {threads} --device {params.device:q} > {log:q} 2>&1"


use rule score_variants as score_variants_regressions with:
    input:
        **GENOME,
        model=PATHS.chromatin_regressions,
        variants=INPUTS.files.get("variants", []),
        aliases=ALIASES,
    output:
        PATHS.scored_variants("-regressions"),
    log:
        PATHS.log("score-variants-regressions"),
    benchmark:
        PATHS.benchmark("score-variants-regressions")
