"""Chromatin profiles: the data set, models of both windows, the baseline, their report, and variants."""

CHROMATIN = CONFIG.chromatin
PROFILE_WINDOWS = [w for w in (CHROMATIN.window, CHROMATIN.compare_window) if w is not None]
SIMULATED_TRACKS = CHROMATIN.tracks == SIMULATED
PUBLISHED_TRACKS = CHROMATIN.tracks == DEEPSEA
if SIMULATED_TRACKS:
    TRACK_TABLE = rules.simulate.output.tracks
elif PUBLISHED_TRACKS:
    TRACK_TABLE = RAW["tracks"]
else:
    TRACK_TABLE = located(CHROMATIN.tracks)
VARIANTS = rules.simulate.output.variants if SIMULATED_TRACKS else located(CHROMATIN.variants)
VARIANT_FILES = [f"{RESULTS}/chromatin/variants.vcf.gz"] if VARIANTS else []


rule unpack_deepsea:
    input:
        RAW["bundle"] if PUBLISHED_TRACKS else [],
    output:
        # Several GB, wanted once; the archive stays.
        temp(directory(f"{RESULTS}/chromatin/bundle")),
    log:
        f"{RESULTS}/logs/unpack-deepsea.log",
    benchmark:
        f"{RESULTS}/benchmarks/unpack-deepsea.tsv"
    resources:
        mem_mb=1000,
        runtime=60,
    params:
        version=VERSION,
    shell:
        "bigbird-dna unpack-deepsea {input:q} -o {output:q} > {log} 2>&1"


rule chromatin_data:
    input:
        config=f"{RESULTS}/config/labels.yaml",
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        tracks=TRACK_TABLE,
        peaks=rules.simulate.output.peaks if SIMULATED_TRACKS else [],
        bundle=rules.unpack_deepsea.output if PUBLISHED_TRACKS else [],
        bins=RAW["bins"] if PUBLISHED_TRACKS else [],
        blacklist=located(CHROMATIN.blacklist),
    output:
        bins=f"{RESULTS}/chromatin/data/bins.parquet",
        labels=f"{RESULTS}/chromatin/data/labels.npz",
        tracks=f"{RESULTS}/chromatin/data/tracks.tsv",
        description=f"{RESULTS}/chromatin/data/dataset.json",
    log:
        f"{RESULTS}/logs/chromatin-data.log",
    benchmark:
        f"{RESULTS}/benchmarks/chromatin-data.tsv"
    resources:
        mem_mb=8000,
        runtime=240,
    params:
        bundle=lambda wildcards, input: (
            ["--bundle", *input.bundle, "--bed", input.bins] if input.bundle else []
        ),
        blacklist=lambda wildcards, input: (
            ["--blacklist", input.blacklist] if input.blacklist else []
        ),
        directory=subpath(output.bins, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna chromatin-data {input.config:q} --tracks {input.tracks:q} {params.bundle:q}"
        " {params.blacklist:q}"
        " --reference {input.reference:q} -o {params.directory:q} > {log} 2>&1"


rule finetune_chromatin:
    input:
        config=f"{RESULTS}/config/profiles.yaml",
        bins=rules.chromatin_data.output.bins,
        rest=rules.chromatin_data.output,
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        tokenizer=rules.train_tokenizer.output[0],
        pretrained=rules.pretrain.output if CHROMATIN.initial == "pretrained" else [],
    output:
        directory(f"{RESULTS}/models/chromatin-{{window}}-{{member}}"),
    log:
        f"{RESULTS}/logs/finetune-chromatin-{{window}}-{{member}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/finetune-chromatin-{{window}}-{{member}}.tsv"
    # More work follows than after the other models: predictions, variants, the report. Then what takes long
    # comes before what is short, so that the cores run out of work together.
    priority: 2
    # One: the models then train side by side, which is faster than one after the other on more cores.
    threads: 1
    resources:
        gpu=1,
        mem_mb=16000,
        runtime=2880,
    params:
        start=lambda wildcards, input: (
            ["--pretrained", *input.pretrained] if input.pretrained else []
        ),
        data=subpath(input.bins, parent=True),
        checkpoints=f"{RESULTS}/checkpoints",
        version=VERSION,
    shell:
        "bigbird-dna finetune-chromatin {input.config:q} --window {wildcards.window}"
        " --member {wildcards.member} --data {params.data:q} --reference {input.reference:q}"
        " --tokenizer {input.tokenizer:q} {params.start:q} --output {output:q}"
        " --checkpoints {params.checkpoints:q} --threads {threads}"
        " --device $([ {resources.gpu} -gt 0 ] && echo cuda || echo cpu) > {log} 2>&1"


rule combine_chromatin:
    input:
        expand(
            f"{RESULTS}/models/chromatin-{CHROMATIN.window}-{{member}}",
            member=range(CHROMATIN.models),
        ),
    output:
        directory(f"{RESULTS}/models/chromatin"),
    log:
        f"{RESULTS}/logs/combine-chromatin.log",
    benchmark:
        f"{RESULTS}/benchmarks/combine-chromatin.tsv"
    params:
        version=VERSION,
    shell:
        "bigbird-dna combine-models {input:q} -o {output:q} > {log} 2>&1"


rule chromatin_predictions:
    input:
        config=f"{RESULTS}/config/evaluation.yaml",
        bins=rules.chromatin_data.output.bins,
        rest=rules.chromatin_data.output,
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
        models=expand(
            f"{RESULTS}/models/chromatin-{{{{window}}}}-{{member}}", member=range(CHROMATIN.models)
        ),
    output:
        f"{RESULTS}/chromatin/predictions-{{window}}.npy",
    log:
        f"{RESULTS}/logs/chromatin-predictions-{{window}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/chromatin-predictions-{{window}}.tsv"
    threads: 1
    resources:
        gpu=1,
        mem_mb=16000,
        runtime=720,
    params:
        data=subpath(input.bins, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna chromatin-predictions {input.config:q} {input.models:q} --data {params.data:q}"
        " --reference {input.reference:q} -o {output:q} --threads {threads}"
        " --device $([ {resources.gpu} -gt 0 ] && echo cuda || echo cpu) > {log} 2>&1"


rule chromatin_baseline:
    input:
        config=f"{RESULTS}/config/evaluation.yaml",
        bins=rules.chromatin_data.output.bins,
        rest=rules.chromatin_data.output,
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
    output:
        predictions=f"{RESULTS}/chromatin/kmers.npy",
        bins=f"{RESULTS}/chromatin/held-out/bins.parquet",
        labels=f"{RESULTS}/chromatin/held-out/labels.npz",
    log:
        f"{RESULTS}/logs/chromatin-baseline.log",
    benchmark:
        f"{RESULTS}/benchmarks/chromatin-baseline.tsv"
    threads: 1
    resources:
        mem_mb=16000,
        runtime=240,
    params:
        data=subpath(input.bins, parent=True),
        held_out=subpath(output.labels, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna chromatin-baseline {input.config:q} --data {params.data:q}"
        " --reference {input.reference:q} -o {output.predictions:q}"
        " --labels {params.held_out:q} --threads {threads} > {log} 2>&1"


rule auc_report:
    input:
        predictions=f"{RESULTS}/chromatin/predictions-{CHROMATIN.window}.npy",
        narrow=(
            [f"{RESULTS}/chromatin/predictions-{CHROMATIN.compare_window}.npy"]
            if CHROMATIN.compare_window
            else []
        ),
        kmers=rules.chromatin_baseline.output.predictions,
        labels=rules.chromatin_baseline.output.labels,
        tracks=rules.chromatin_data.output.tracks,
    output:
        tracks=report(
            f"{RESULTS}/report/chromatin/tracks.tsv",
            category="Chromatin",
            caption="../report/tracks.rst",
            labels={"figure": "every track, table"},
        ),
        groups=report(
            f"{RESULTS}/report/chromatin/groups.tsv",
            category="Chromatin",
            caption="../report/tracks.rst",
            labels={"figure": "groups, table"},
        ),
        page=report(
            f"{RESULTS}/report/chromatin/report.html",
            category="Chromatin",
            caption="../report/tracks.rst",
            labels={"figure": "report"},
        ),
    log:
        f"{RESULTS}/logs/auc-report.log",
    benchmark:
        f"{RESULTS}/benchmarks/auc-report.tsv"
    threads: 2
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        directory=subpath(output.page, parent=True),
        narrow=lambda wildcards, input: (
            ["--compare", f"window_{CHROMATIN.compare_window}={input.narrow[0]}"]
            if input.narrow
            else []
        ),
        # DeepSEA's list has the published AUROCs, and the data set's table keeps them.
        published=lambda wildcards, input: (
            ["--published", input.tracks] if PUBLISHED_TRACKS else []
        ),
        least=CHROMATIN.report_positives,
        version=VERSION,
    shell:
        "bigbird-dna auc-report {input.predictions:q} {input.labels:q} --tracks {input.tracks:q}"
        " {params.narrow:q} --compare kmers={input.kmers:q} {params.published:q}"
        " --min-positives {params.least}"
        " --threads {threads} -o {params.directory:q} > {log} 2>&1"


rule score_variants:
    input:
        model=(
            rules.combine_chromatin.output
            if CHROMATIN.models > 1
            else f"{RESULTS}/models/chromatin-{CHROMATIN.window}-0"
        ),
        variants=VARIANTS,
        reference=rules.prepare_reference.output.fasta,
        indices=rules.prepare_reference.output.indices,
    output:
        f"{RESULTS}/chromatin/variants.vcf.gz",
    log:
        f"{RESULTS}/logs/score-variants.log",
    benchmark:
        f"{RESULTS}/benchmarks/score-variants.tsv"
    priority: 1
    # One: it needn't wait until more cores are free at once; --set-threads gives a large VCF more.
    threads: 1
    resources:
        gpu=1,
        mem_mb=16000,
        runtime=720,
    params:
        # Of the simulated ones those on sequence that no training saw.
        contigs=[f"--contig={contig}" for contig in CONFIG.genome.test if SIMULATED_TRACKS],
        version=VERSION,
    shell:
        "bigbird-dna score-variants {input.model:q} {input.variants:q} {params.contigs:q}"
        " --reference {input.reference:q} --tracks '*' -o {output:q} --threads {threads}"
        " --device $([ {resources.gpu} -gt 0 ] && echo cuda || echo cpu) > {log} 2>&1"


rule variant_report:
    input:
        rules.score_variants.output[0],
    output:
        table=report(
            f"{RESULTS}/report/variants.tsv",
            category="Chromatin",
            caption="../report/variants.rst",
            labels={"figure": "variants, table"},
        ),
        figure=report(
            f"{RESULTS}/report/variants.svg",
            category="Chromatin",
            caption="../report/variants.rst",
            labels={"figure": "variants"},
        ),
    log:
        f"{RESULTS}/logs/variant-report.log",
    benchmark:
        f"{RESULTS}/benchmarks/variant-report.tsv"
    resources:
        mem_mb=2000,
        runtime=15,
    params:
        directory=subpath(output.table, parent=True),
        version=VERSION,
    shell:
        "bigbird-dna variant-report {input:q} -o {params.directory:q} > {log} 2>&1"


# Only of simulated variants the effects are known.
VARIANT_REPORT = list(rules.variant_report.output) if SIMULATED_TRACKS else []
