"""What each stage sees of the configuration."""

import json

GENOME = set(type(CONFIG.genome).model_fields) - {"promoters", "chain"}
WINDOWS = {"upstream", "downstream", "negative_sets", "negatives", "distance"}
TRAINING = set(type(CONFIG.promoters).model_fields) - (WINDOWS - {"upstream", "downstream"})
LABELS = {
    *("track_names", "group", "bin", "window", "compare_window", "shift", "label", "widen"),
    *("negative_fraction", "minimum_positives", "minimum_held_out", "blacklist", "max_n"),
    *("valid_regions", "test_regions"),
}
# What the rules themselves read: files, and what the report and the ensemble are made of.
RULES = {"tracks", "variants", "report_positives", "models", "compare_window"}
EVALUATION = {"test_bins", "middle", "baseline_kmer"}
PROFILES = (
    set(type(CONFIG.chromatin).model_fields)
    - (LABELS - {"bin", "window", "shift"})
    - RULES
    - EVALUATION
)

# The keys that a stage reads: a change of any other key doesn't run it again.
STAGES = {
    "tokens": {"seed": True, "genome": GENOME, "tokens": True},
    "pretraining": {
        "seed": True,
        "genome": GENOME,
        "tokens": True,
        "encoder": True,
        "pretraining": True,
    },
    "windows": {
        "seed": True,
        "genome": True,
        "promoters": WINDOWS | {"control"},
    },
    "finetuning": {
        "seed": True,
        "genome": True,
        "encoder": True,
        "pretraining": {"sequence_tokens"},
        "promoters": TRAINING - {"baseline_kmer"},
    },
    "baseline": {"seed": True, "promoters": {"seed", "baseline_kmer", "control"}},
    "labels": {"seed": True, "genome": GENOME, "chromatin": LABELS},
    "profiles": {
        "seed": True,
        "genome": GENOME,
        "encoder": True,
        "pretraining": {"sequence_tokens"},
        "chromatin": PROFILES,
    },
    "evaluation": {"chromatin": EVALUATION | {"seed", "pooling"}},
    "attention": {"encoder": True, "pretraining": {"sequence_tokens"}},
}

# A stage trains one model at a time: the control is the workflow's concern.
WITHOUT_CONTROL = CONFIG.model_copy(
    update={"promoters": CONFIG.promoters.model_copy(update={"control": None})}
)


rule stage_config:
    output:
        f"{RESULTS}/config/{{stage}}.yaml",
    log:
        f"{RESULTS}/logs/config-{{stage}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/config-{{stage}}.tsv"
    wildcard_constraints:
        stage="|".join(STAGES),
    localrule: True
    params:
        # JSON is YAML.
        text=lambda wildcards: json.dumps(
            WITHOUT_CONTROL.model_dump(mode="json", include=STAGES[wildcards.stage]), indent=1
        ),
    shell:
        "printf '%s\\n' {params.text:q} > {output} 2> {log}"
