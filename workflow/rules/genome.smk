"""Reference and promoters: simulated, fetched or the user's own, brought onto one assembly."""


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
        mem_mb=growing(2000),
        runtime=growing(30),
    params:
        directory=subpath(output.reference, parent=True),
        seed=CONFIG.seed,
        megabases=CONFIG.simulation.megabases,
    shell:
        "bigbird-dna simulate {params.directory:q} --seed {params.seed:q}"
        " --megabases {params.megabases:q} > {log:q} 2>&1"


rule fetch:
    output:
        PATHS.download("{file}"),
    log:
        PATHS.log("fetch-{file}"),
    benchmark:
        PATHS.benchmark("fetch-{file}")
    localrule: True
    resources:
        # No param: the same file from another place is no reason to run everything again.
        # Quoted here: without a directory there is no option either.
        data_dir=shlex.quote(f"--local-data={CONFIG.data_dir}") if CONFIG.data_dir else "",
    params:
        key=lambda wildcards: INPUTS.keys[wildcards.file],
    shell:
        "bigbird-dna prepare fetch {params.key:q} -o {output:q} {resources.data_dir} > {log:q} 2>&1"


rule prepare_reference:
    input:
        genome=INPUTS.files.get("reference", []),
        aliases=ALIASES,
    output:
        fasta=PATHS.reference,
        indices=multiext(str(PATHS.reference), ".fai", ".gzi"),
    log:
        PATHS.log("prepare-reference"),
    benchmark:
        PATHS.benchmark("prepare-reference")
    resources:
        mem_mb=growing(2000),
        runtime=growing(60),
    params:
        naming=NAMING,
    shell:
        "bigbird-dna prepare reference {input.genome:q} -o {output.fasta:q}"
        " {params.naming:q} > {log:q} 2>&1"


rule prepare_promoters:
    input:
        promoters=INPUTS.files.get("promoters", []),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
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
        mem_mb=growing(2000),
        runtime=growing(30),
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
