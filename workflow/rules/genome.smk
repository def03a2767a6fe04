"""Reference and promoters: simulated, fetched or the user's own, brought onto one assembly."""

if CONFIG.genome.reference is None:
    RAW = {
        "reference": f"{RESULTS}/simulated/genome.fa.gz",
        "promoters": f"{RESULTS}/simulated/promoters.sga",
    }
else:
    RAW = {name: f"{RESULTS}/downloads/{source.file}" for name, source in SOURCES.items()}
    RAW |= {name: str(path) for name, path in OWN_FILES.items()}


rule simulate:
    output:
        reference=f"{RESULTS}/simulated/genome.fa.gz",
        promoters=f"{RESULTS}/simulated/promoters.sga",
        tracks=f"{RESULTS}/simulated/tracks.tsv",
        peaks=directory(f"{RESULTS}/simulated/peaks"),
        variants=f"{RESULTS}/simulated/variants.vcf.gz",
    log:
        f"{RESULTS}/logs/simulate.log",
    benchmark:
        f"{RESULTS}/benchmarks/simulate.tsv"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        directory=subpath(output.reference, parent=True),
        seed=CONFIG.seed,
        megabases=CONFIG.simulation.megabases,
        version=VERSION,
    shell:
        "bigbird-dna simulate {params.directory:q} --seed {params.seed}"
        " --megabases {params.megabases} > {log} 2>&1"


rule fetch:
    output:
        f"{RESULTS}/downloads/{{file}}",
    log:
        f"{RESULTS}/logs/fetch-{{file}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/fetch-{{file}}.tsv"
    localrule: True
    resources:
        # No param: the same file from another place is no reason to run everything again.
        local_data=f"--local-data {shlex.quote(CONFIG.local_data)}" if CONFIG.local_data else "",
    params:
        key=lambda wildcards: {source.file: source.key for source in SOURCES.values()}[
            wildcards.file
        ],
    shell:
        "bigbird-dna fetch {params.key} -o {output:q} {resources.local_data} > {log} 2>&1"


rule prepare_reference:
    input:
        RAW["reference"],
    output:
        fasta=f"{RESULTS}/genome/reference.fa.gz",
        indices=multiext(f"{RESULTS}/genome/reference.fa.gz", ".fai", ".gzi"),
    log:
        f"{RESULTS}/logs/prepare-reference.log",
    benchmark:
        f"{RESULTS}/benchmarks/prepare-reference.tsv"
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        assembly=CONFIG.genome.assembly,
        version=VERSION,
    shell:
        "bigbird-dna prepare-reference {input:q} -o {output.fasta:q}"
        " --assembly {params.assembly} > {log} 2>&1"


rule prepare_promoters:
    input:
        promoters=RAW["promoters"] if PROMOTERS else [],
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        chain=[RAW["chain"]] if "chain" in RAW else [],
    output:
        loci=f"{RESULTS}/genome/promoters.tsv",
        counts=f"{RESULTS}/genome/promoters.json",
    log:
        f"{RESULTS}/logs/prepare-promoters.log",
    benchmark:
        f"{RESULTS}/benchmarks/prepare-promoters.tsv"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        assembly=CONFIG.genome.assembly,
        lift=lambda wildcards, input: (
            ["--chain", input.chain, "--from-assembly", SOURCES["chain"].from_assembly]
            if input.chain
            else []
        ),
        version=VERSION,
    shell:
        "bigbird-dna prepare-promoters {input.promoters:q} --reference {input.reference:q}"
        " --assembly {params.assembly} {params.lift:q} -o {output.loci:q} > {log} 2>&1"
