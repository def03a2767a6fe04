"""Chromatin: the data set, models of both windows, the baseline, their report, and variants."""

CHROMATIN = CONFIG.chromatin
# The effects of simulated variants are known: those on sequence that no training saw are scored and judged.
KNOWN_EFFECTS = CHROMATIN.data.tracks == SIMULATED
HELD_OUT = [
    contig
    for text in CONFIG.genome.test
    for contig in fnmatch.filter((f"demo{number}" for number in range(1, 7)), text) or [text]
]


rule unpack_deepsea:
    input:
        INPUTS.files.get("bundle", []),
    output:
        # Several GB, wanted once; the archive stays.
        temp(directory(PATHS.deepsea_bundle)),
    log:
        PATHS.log("prepare-deepsea"),
    benchmark:
        PATHS.benchmark("prepare-deepsea")
    resources:
        mem_mb=growing(1000),
        runtime=growing(60),
    shell:
        "bigbird-dna prepare deepsea {input:q} -o {output:q} > {log:q} 2>&1"


rule chromatin_data:
    input:
        config=PATHS.stage("chromatin-data"),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        tracks=INPUTS.files.get("tracks", []),
        peaks=INPUTS.files.get("peaks", []),
        bundle=rules.unpack_deepsea.output if "bundle" in INPUTS.files else [],
        bins=INPUTS.files.get("bins", []),
        blacklist=INPUTS.files.get("blacklist", []),
        aliases=ALIASES,
    output:
        **LABELLED_FILES,
    log:
        PATHS.log("chromatin-data"),
    benchmark:
        PATHS.benchmark("chromatin-data")
    resources:
        mem_mb=growing(8000),
        runtime=growing(240),
    params:
        bundle=lambda wildcards, input: (
            ["--deepsea-bundle", *input.bundle, "--deepsea-bins", input.bins]
            if input.bundle
            else []
        ),
        blacklist=lambda wildcards, input: (
            ["--blacklist", input.blacklist] if input.blacklist else []
        ),
        target=subpath(output.bins, parent=True),
        piece=[],
        aliases=SET_ALIASES,
    shell:
        "bigbird-dna prepare chromatin {input.config:q} --tracks {input.tracks:q} {params.bundle:q}"
        " {params.blacklist:q} {params.aliases:q} {params.piece:q}"
        " --reference {input.reference:q} -o {params.target:q} > {log:q} 2>&1"


rule finetune_chromatin:
    input:
        config=PATHS.stage("chromatin"),
        bins=DATA_FILES["bins"],
        rest=list(DATA_FILES.values()),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        tokenizer=rules.train_tokenizer.output[0],
        pretrained=rules.pretrain.output if CHROMATIN.model.initial == "pretrained" else [],
    output:
        directory(PATHS.chromatin_model("{window}", "{member}")),
    log:
        PATHS.log("finetune-chromatin-{window}-{member}"),
    benchmark:
        PATHS.benchmark("finetune-chromatin-{window}-{member}")
    # More work follows than after the other models: predictions, variants, the report. Then what takes long
    # comes before what is short, so that the cores run out of work together.
    priority: 2
    container:
        AROUND_TRAINING
    # One each: models then train side by side, which is faster than one after the other on more cores.
    threads: CHROMATIN.num_gpus
    resources:
        processes=CHROMATIN.num_gpus,
        gpu=CHROMATIN.num_gpus,
        mem_mb=growing(16000 * CHROMATIN.num_gpus),
        runtime=2880,
    params:
        start=lambda wildcards, input: (
            ["--pretrained", *input.pretrained] if input.pretrained else []
        ),
        data=subpath(input.bins, parent=True),
        checkpoints=str(PATHS.checkpoints),
        launch=LAUNCH,
        threads=THREADS_EACH,
        limit=LIMIT,
        device=DEVICE,
    shell:
        "{params.launch:q} finetune-chromatin {input.config:q} --window {wildcards.window:q}"
        " --ensemble-index {wildcards.member:q} --data {params.data:q} --reference {input.reference:q}"
        " --tokenizer {input.tokenizer:q} {params.start:q} --output {output:q}"
        " --checkpoint-dir {params.checkpoints:q} --threads {params.threads:q} {params.limit:q}"
        " --device {params.device:q} > {log:q} 2>&1"


rule combine_chromatin:
    input:
        expand(
            PATHS.chromatin_model(CHROMATIN.data.window, "{member}"),
            member=range(CHROMATIN.models),
        ),
    output:
        directory(PATHS.combined_chromatin),
    log:
        PATHS.log("combine-chromatin"),
    benchmark:
        PATHS.benchmark("combine-chromatin")
    shell:
        "bigbird-dna model ensemble {input:q} -o {output:q} > {log:q} 2>&1"


# A directory of its own: Snakemake removes what a rule makes before it runs again, and with it what others
# had put there. So a fault here costs no training, and models of before are calibrated without another one.
rule calibrate_chromatin:
    input:
        config=PATHS.stage("chromatin-calibration"),
        model=(
            rules.combine_chromatin.output
            if CHROMATIN.models > 1
            else PATHS.chromatin_model(CHROMATIN.data.window, 0)
        ),
        bins=DATA_FILES["bins"],
        rest=list(DATA_FILES.values()),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
    output:
        directory(PATHS.calibrated_chromatin),
    log:
        PATHS.log("model-calibrate-chromatin"),
    benchmark:
        PATHS.benchmark("model-calibrate-chromatin")
    threads: 1
    resources:
        gpu=1,
        mem_mb=growing(16000),
        runtime=growing(720),
    params:
        data=subpath(input.bins, parent=True),
        device=DEVICE,
    shell:
        "bigbird-dna model calibrate-chromatin {input.config:q} {input.model:q} --data {params.data:q}"
        " --reference {input.reference:q} -o {output:q} --threads {threads}"
        " --device {params.device:q} > {log:q} 2>&1"


rule chromatin_predictions:
    input:
        config=PATHS.stage("chromatin-evaluation"),
        bins=DATA_FILES["bins"],
        rest=list(DATA_FILES.values()),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        models=expand(
            PATHS.chromatin_model("{{window}}", "{member}"), member=range(CHROMATIN.models)
        ),
    output:
        PATHS.chromatin_predictions("{window}"),
    log:
        PATHS.log("chromatin-predictions-{window}"),
    benchmark:
        PATHS.benchmark("chromatin-predictions-{window}")
    threads: 1
    resources:
        gpu=1,
        mem_mb=growing(16000),
        runtime=growing(720),
    params:
        data=subpath(input.bins, parent=True),
        piece=[],
        device=DEVICE,
    shell:
        "bigbird-dna evaluate test-bins {input.config:q} {input.models:q} --data {params.data:q}"
        " --reference {input.reference:q} {params.piece:q} -o {output:q} --threads {threads}"
        " --device {params.device:q} > {log:q} 2>&1"


rule chromatin_baseline:
    input:
        config=PATHS.stage("chromatin-evaluation"),
        bins=DATA_FILES["bins"],
        rest=list(DATA_FILES.values()),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
    output:
        predictions=PATHS.chromatin_kmers,
        bins=PATHS.held_out_bins / "bins.parquet",
        labels=PATHS.held_out_bins / "labels.npz",
    log:
        PATHS.log("chromatin-baseline"),
    benchmark:
        PATHS.benchmark("chromatin-baseline")
    threads: 1
    resources:
        mem_mb=growing(16000),
        runtime=growing(240),
    params:
        data=subpath(input.bins, parent=True),
        held_out=subpath(output.labels, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna train baseline-chromatin {input.config:q} --data {params.data:q}"
        " --reference {input.reference:q} -o {output.predictions:q}"
        " --labels {params.held_out:q} --threads {threads} > {log:q} 2>&1"


rule auc_report:
    input:
        predictions=PATHS.chromatin_predictions(CHROMATIN.data.window),
        narrow=(
            [PATHS.chromatin_predictions(CHROMATIN.data.compare_window)]
            if CHROMATIN.data.compare_window
            else []
        ),
        kmers=rules.chromatin_baseline.output.predictions,
        labels=rules.chromatin_baseline.output.labels,
        calibrated=rules.calibrate_chromatin.output,
        tracks=DATA_FILES["tracks"],
    output:
        tracks=report(
            PATHS.report / "chromatin/tracks.tsv",
            category="Chromatin",
            caption=f"{CAPTIONS}/tracks.rst",
            labels={"figure": "every track, table"},
        ),
        groups=report(
            PATHS.report / "chromatin/groups.tsv",
            category="Chromatin",
            caption=f"{CAPTIONS}/tracks.rst",
            labels={"figure": "groups, table"},
        ),
        calibration=report(
            PATHS.report / "chromatin/track_calibration.svg",
            category="Chromatin",
            caption=f"{CAPTIONS}/track_calibration.rst",
            labels={"figure": "calibration"},
        ),
        calibration_table=report(
            PATHS.report / "chromatin/track_calibration.tsv",
            category="Chromatin",
            caption=f"{CAPTIONS}/track_calibration.rst",
            labels={"figure": "calibration, table"},
        ),
        page=report(
            PATHS.report / "chromatin/report.html",
            category="Chromatin",
            caption=f"{CAPTIONS}/tracks.rst",
            labels={"figure": "report"},
        ),
    log:
        PATHS.log("auc-report"),
    benchmark:
        PATHS.benchmark("auc-report")
    threads: 2
    resources:
        mem_mb=growing(4000),
        runtime=growing(60),
    params:
        directory=subpath(output.page, parent=True),
        narrow=lambda wildcards, input: (
            ["--compare", f"window_{CHROMATIN.data.compare_window}={input.narrow[0]}"]
            if input.narrow
            else []
        ),
        # DeepSEA's list has the published AUROCs, and the data set's table keeps them.
        published=lambda wildcards, input: (
            ["--published", input.tracks] if "bundle" in INPUTS.files else []
        ),
        calibration=lambda wildcards, input: f"{input.calibrated}/calibration.json",
        least=CHROMATIN.min_positives_report,
        version=VERSION,
    shell:
        "bigbird-dna auc-report {input.predictions:q} {input.labels:q} --tracks {input.tracks:q}"
        " {params.narrow:q} --compare kmers={input.kmers:q} {params.published:q}"
        " --min-positives {params.least:q} --calibration {params.calibration:q}"
        " --threads {threads} -o {params.directory:q} > {log:q} 2>&1"


rule score_variants:
    input:
        model=(
            rules.combine_chromatin.output
            if CHROMATIN.models > 1
            else PATHS.chromatin_model(CHROMATIN.data.window, 0)
        ),
        variants=INPUTS.files.get("variants", []),
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        aliases=ALIASES,
    output:
        PATHS.scored_variants,
    log:
        PATHS.log("score-variants"),
    benchmark:
        PATHS.benchmark("score-variants")
    priority: 1
    # One: it needn't wait until more cores are free at once; --set-threads gives a large VCF more.
    threads: 1
    resources:
        gpu=1,
        mem_mb=growing(16000),
        runtime=growing(720),
    params:
        contigs=lambda wildcards: [f"--contig={contig}" for contig in HELD_OUT if KNOWN_EFFECTS],
        aliases=["--aliases", str(ALIASES)] if ALIASES else [],
        piece=[],
        device=DEVICE,
    shell:
        "bigbird-dna score-variants {input.model:q} {input.variants:q} {params.contigs:q}"
        " --reference {input.reference:q} {params.aliases:q} --tracks '*' {params.piece:q} -o {output:q}"
        " --threads {threads} --device {params.device:q} > {log:q} 2>&1"


rule variant_report:
    input:
        PATHS.scored_variants,
    output:
        table=report(
            PATHS.report / "variants.tsv",
            category="Chromatin",
            caption=f"{CAPTIONS}/variants.rst",
            labels={"figure": "variants, table"},
        ),
        figure=report(
            PATHS.report / "variants.svg",
            category="Chromatin",
            caption=f"{CAPTIONS}/variants.rst",
            labels={"figure": "variants"},
        ),
    log:
        PATHS.log("variant-report"),
    benchmark:
        PATHS.benchmark("variant-report")
    resources:
        mem_mb=growing(2000),
        runtime=growing(15),
    params:
        directory=subpath(output.table, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna evaluate variants {input:q} -o {params.directory:q} > {log:q} 2>&1"
