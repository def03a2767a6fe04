"""Promoter windows, and bins with chromatin labels."""


rule prepare_promoter_windows:
    input:
        **GENOME,
        config=PATHS.stage("windows"),
        promoters=PATHS.promoters,
        aliases=ALIASES,
    output:
        windows=WINDOWS["windows"],
        labels=WINDOWS["labels"],
        counts=PATHS.windows / "windows.json",
    log:
        PATHS.log("prepare-promoter-windows"),
    benchmark:
        PATHS.benchmark("prepare-promoter-windows")
    resources:
        **job(8000, 120),
    params:
        directory=subpath(output.windows, parent=True),
        aliases=SET_ALIASES,
    shell:
        "bigbird-dna prepare promoter-windows {input.config:q} {params.aliases:q}"
        " --reference {input.reference:q} --promoters {input.promoters:q}"
        " --output {params.directory:q} > {log:q} 2>&1"


rule prepare_chromatin:
    input:
        **GENOME,
        config=PATHS.stage("chromatin-data"),
        tracks=INPUTS.files.get("tracks", []),
        peaks=INPUTS.files.get("peaks", []),
        deepsea_bundle=INPUTS.files.get("bundle", []),
        deepsea_bins=INPUTS.files.get("bins", []),
        blacklist=INPUTS.files.get("blacklist", []),
        aliases=ALIASES,
    output:
        **DATA_FILES,
    log:
        PATHS.log("prepare-chromatin"),
    benchmark:
        PATHS.benchmark("prepare-chromatin")
    resources:
        **job(16000, 720),
    params:
        bundle=given("deepsea_bundle", "deepsea_bins"),
        blacklist=given("blacklist"),
        directory=subpath(output.bins, parent=True),
        aliases=SET_ALIASES,
    shell:
        "bigbird-dna prepare chromatin {input.config:q} --track-table {input.tracks:q} {params.bundle:q}"
        " {params.blacklist:q} {params.aliases:q}"
        " --reference {input.reference:q} -o {params.directory:q} > {log:q} 2>&1"
