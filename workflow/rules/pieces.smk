"""Work in pieces that run at the same time (`scoring.shards`, `chromatin.shards`), merged to one job's bytes.

A piece is made by the rule of the whole job, with its resources, under the rule's name and `_piece`. With one
piece there is nothing here, and the rules of the other files do the work.
"""

if CONFIG.example_scan.shards > 1:
    SCORE_PIECES = CONFIG.example_scan.shards

    use rule score_promoters as score_promoters_piece with:
        output:
            temp(PATHS.piece(PATHS.promoter_scores("{format}"), "{piece}", SCORE_PIECES)),
        log:
            PATHS.log("score-promoters-{format}-{piece}"),
        benchmark:
            PATHS.benchmark("score-promoters-{format}-{piece}")
        wildcard_constraints:
            format="tsv|bedgraph",
            piece="[0-9]+",
        params:
            piece=piece_option(SCORE_PIECES),

    rule merge_promoter_scores:
        input:
            pieces_of(PATHS.promoter_scores("{format}"), SCORE_PIECES),
        output:
            PATHS.promoter_scores("{format}"),
        log:
            PATHS.log("merge-promoter-scores-{format}"),
        benchmark:
            PATHS.benchmark("merge-promoter-scores-{format}")
        wildcard_constraints:
            format="tsv|bedgraph",
        resources:
            mem_mb=2000,
            runtime=120,
        params:
            version=VERSION,
        shell:
            "bigbird-dna merge-shards {input:q} -o {output:q} > {log:q} 2>&1"

    ruleorder: merge_promoter_scores > score_promoters


if CHROMATIN.shards.data > 1:
    DATA_PIECES = CHROMATIN.shards.data

    use rule chromatin_data as chromatin_data_piece with:
        output:
            temp(PATHS.piece(LABELLED, "{piece}", DATA_PIECES)),
        log:
            PATHS.log("chromatin-data-{piece}"),
        benchmark:
            PATHS.benchmark("chromatin-data-{piece}")
        wildcard_constraints:
            piece="[0-9]+",
        params:
            target=lambda wildcards, output: output[0],
            piece=piece_option(DATA_PIECES),

    rule merge_chromatin_data:
        input:
            pieces_of(LABELLED, DATA_PIECES),
        output:
            **LABELLED_FILES,
        log:
            PATHS.log("merge-chromatin-data"),
        benchmark:
            PATHS.benchmark("merge-chromatin-data")
        resources:
            mem_mb=8000,
            runtime=120,
        params:
            directory=subpath(output.bins, parent=True),
            version=VERSION,
        shell:
            "bigbird-dna merge-shards {input:q} -o {params.directory:q} > {log:q} 2>&1"

    ruleorder: merge_chromatin_data > chromatin_data


if CHROMATIN.shards.predictions > 1:
    PREDICTION_PIECES = CHROMATIN.shards.predictions

    use rule chromatin_predictions as chromatin_predictions_piece with:
        output:
            temp(PATHS.piece(PATHS.chromatin_predictions("{window}"), "{piece}", PREDICTION_PIECES)),
        log:
            PATHS.log("chromatin-predictions-{window}-{piece}"),
        benchmark:
            PATHS.benchmark("chromatin-predictions-{window}-{piece}")
        wildcard_constraints:
            window="[0-9]+",
            piece="[0-9]+",
        params:
            piece=piece_option(PREDICTION_PIECES),

    rule merge_chromatin_predictions:
        input:
            pieces_of(PATHS.chromatin_predictions("{window}"), PREDICTION_PIECES),
        output:
            PATHS.chromatin_predictions("{window}"),
        log:
            PATHS.log("merge-chromatin-predictions-{window}"),
        benchmark:
            PATHS.benchmark("merge-chromatin-predictions-{window}")
        wildcard_constraints:
            window="[0-9]+",
        resources:
            mem_mb=8000,
            runtime=120,
        params:
            version=VERSION,
        shell:
            "bigbird-dna merge-shards {input:q} -o {output:q} > {log:q} 2>&1"

    ruleorder: merge_chromatin_predictions > chromatin_predictions


if CHROMATIN.shards.variants > 1:
    VARIANT_PIECES = CHROMATIN.shards.variants

    use rule score_variants as score_variants_piece with:
        output:
            temp(PATHS.piece(PATHS.scored_variants, "{piece}", VARIANT_PIECES)),
        log:
            PATHS.log("score-variants-{piece}"),
        benchmark:
            PATHS.benchmark("score-variants-{piece}")
        wildcard_constraints:
            piece="[0-9]+",
        params:
            piece=piece_option(VARIANT_PIECES),

    rule merge_variants:
        input:
            pieces_of(PATHS.scored_variants, VARIANT_PIECES),
        output:
            PATHS.scored_variants,
        log:
            PATHS.log("merge-variants"),
        benchmark:
            PATHS.benchmark("merge-variants")
        resources:
            mem_mb=2000,
            runtime=120,
        params:
            version=VERSION,
        shell:
            "bigbird-dna merge-shards {input:q} -o {output:q} > {log:q} 2>&1"

    ruleorder: merge_variants > score_variants
