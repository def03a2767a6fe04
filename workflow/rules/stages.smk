"""What each stage sees of the configuration: a change of any other key doesn't run it again."""


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
