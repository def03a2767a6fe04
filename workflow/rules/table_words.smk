"""Which models and comparators the paper's tables have, and the words of their commands."""

import re

from bigbird_dna.config import (
    LONG_RANGE_TASKS,
    STUDY_STARTS,
    STUDY_TASKS,
    LongRangeConfig,
    share_name,
)
from bigbird_dna.papers.comparators.registry import NETWORK_NAMES, PROBE
from bigbird_dna.config.experiments import OWN_MODEL

TABLES = CONFIG.tables
TABLE_CHECKPOINTS = str(PATHS.checkpoints / "tables")
TABLE_MODELS = {model.name: model for model in TABLES.models}
# Their names as wildcards have them: those of the tables alone, and with the run's own.
TABLE_NAMES = "|".join(map(re.escape, TABLE_MODELS)) or "none"
ANY_MODEL = f"{OWN_MODEL}|{TABLE_NAMES}"
TABLE_STEPS = TABLES.pretraining_steps or CONFIG.pretraining.steps


def table_groups():
    """The language models of each part of Table 6, by the bp of its windows and its negative set."""
    length = CONFIG.promoters.windows.length
    sets = TABLES.negative_sets or CONFIG.promoters.windows.negative_sets
    groups = {(length, name): [OWN_MODEL] for name in sets if name != "user"}
    seen = [(bases, OWN_MODEL) for bases in TABLES.windows or () if bases != length]
    seen += [(model.window, model.name) for model in TABLES.models if model.window]
    for bases, model in seen:
        groups.setdefault((bases, TABLES.context_negative_set), []).append(model)
    return groups


def table_comparators(task, name):
    """The directories of the comparators of a table."""
    return [
        PATHS.table_comparator(task, name, comparator, seed)
        for comparator in getattr(TABLES, task)
        # Those that are trained have a model for each seed, the others for the first.
        for seed in (TABLES.seeds if comparator in NETWORK_NAMES else TABLES.seeds[:1])
    ]


def table_models(task, name, models):
    """The directories of language models of a table."""
    return [
        PATHS.table_model(task, name, model, start, seed)
        for model in models
        for start in TABLES.initializations
        for seed in TABLES.seeds
    ]


def table_probes(task, name, models):
    """The directories of what is read from language models that stay as they are."""
    return [
        PATHS.table_comparator(task, name, f"{model}-{start}-{PROBE}", seed)
        for model in models
        for start in TABLES.initializations
        # Weights that were pretrained once have one probe.
        for seed in (TABLES.seeds if start == "random" else TABLES.seeds[:1])
        if TABLES.linear_probes
    ]


def table_entries(task, name, models):
    """All directories that a table, or a part of Table 6, compares."""
    return [
        *table_models(task, name, models),
        *table_probes(task, name, models),
        *table_comparators(task, name),
    ]


def chromatin_models():
    """The language models of Table 7."""
    return [OWN_MODEL, *(model.name for model in TABLES.models if model.window)]


def table_pretrained(model):
    """The pretrained weights of a language model of the tables, as a list: what a command has after an option."""
    return [PATHS.pretrained if model == OWN_MODEL else PATHS.table_pretrained(model)]


def table_encoder(model):
    """What the encoder of a language model has otherwise than the run's own: values by key."""
    if model == OWN_MODEL:
        return {}
    wanted = TABLE_MODELS[model]
    return {
        "encoder.attention": wanted.attention,
        "encoder.attention_options": "{}",
        "encoder.max_length": max(wanted.tokens, CONFIG.encoder.max_length),
    }


def table_pretraining(wildcards):
    """What the pretraining of a language model has otherwise: other inputs, as many tokens a step."""
    wanted, own = TABLE_MODELS[wildcards.lm], CONFIG.pretraining
    sequences = max(1, round(own.batch_size * own.sequence_tokens / wanted.tokens))
    return set_words(
        {
            **table_encoder(wildcards.lm),
            "pretraining.sequence_tokens": wanted.tokens,
            "pretraining.batch_size": sequences,
            "pretraining.length_curriculum": "[]",
            "pretraining.steps": TABLE_STEPS,
        }
    )


def table_settings(wildcards, section):
    """What a language model of a table has otherwise than the task's own: words for its command."""
    windows = table_sides(wildcards) if section == "promoters" else {}
    # On tracks the run's own model has the run's window; another learns from as many bins a step.
    own = section == "promoters" or wildcards.lm == OWN_MODEL
    window = [] if own else [f"--window={TABLE_MODELS[wildcards.lm].window}"]
    number = getattr(TABLES.lm_steps, section)
    steps = {f"{section}.training.steps": number} if number else {}
    values = {
        **table_encoder(wildcards.lm),
        **windows,
        **steps,
        f"{section}.model.initial": wildcards.start,
        f"{section}.training.seed": wildcards.seed,
    }
    return [*set_words(values), *window]


def set_words(values):
    """Keys that differ, as words for a command."""
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def table_sides(wildcards):
    """The windows of a size: divided at the TSS as those of the run."""
    windows, bases = CONFIG.promoters.windows, int(wildcards.bases)
    upstream = round(bases * windows.upstream / windows.length)
    return {
        "promoters.windows.upstream": upstream,
        "promoters.windows.downstream": bases - upstream,
    }


def table_window_settings(wildcards):
    """What the data set of a window size has otherwise than the run's own: words for its command."""
    sets = [name for bases, name in table_groups() if bases == int(wildcards.bases)]
    return set_words(
        {**table_sides(wildcards), "promoters.windows.negative_sets": f"[{', '.join(sets)}]"}
    )


def comparator_options(wildcards):
    """Options of a comparator beside its seed: those of networks, and of the scan with known motifs."""
    number = getattr(
        TABLES.cnn_steps, "promoters" if hasattr(wildcards, "bases") else "chromatin"
    )
    steps = [f"--steps={number}"] if number else []
    taxon = [f"--taxon={TABLES.taxon}"] if wildcards.comparator == "motifs" else []
    return (steps if wildcards.comparator in NETWORK_NAMES else []) + taxon


def probe_options(wildcards):
    """Which model a probe reads, with which weights, and of chromatin in which window.

    The run's own model has the window of the other comparators: pretraining saw no longer inputs.
    """
    model = TABLE_MODELS.get(wildcards.lm)
    window = [] if model is None or hasattr(wildcards, "bases") else [f"--window={model.window}"]
    return [
        f"--model={table_pretrained(wildcards.lm)[0]}",
        f"--weights={wildcards.start}",
        *window,
    ]


def evaluation_settings(section):
    """The keys of an evaluation, which the files of other stages don't have: words for a command."""
    values = getattr(CONFIG, section).evaluation.model_dump(mode="json")
    return set_words(
        {f"{section}.evaluation.{key}": json.dumps(value) for key, value in values.items()}
    )


def study_settings(wildcards, section):
    """What a model of a study has otherwise than the task's own: words for the command that trains it."""
    study = CONFIG.pretraining_study
    steps = study.random_long_steps if wildcards.start == "random_long" else study.steps
    values = {
        "model.initial": "pretrained" if wildcards.start == "pretrained" else "random",
        "training.train_fraction": wildcards.share,
        "training.seed": wildcards.seed,
        "training.steps": steps,
        "training.evaluate_every": study.evaluate_every,
    }
    if section == "promoters":
        values["calibration.negatives"] = 0  # nobody asks whether these models' probabilities hold
    said = [f"{section}.{key}={value}" for key, value in values.items() if value is not None]
    return [word for text in said for word in ("--set", text)]


def study_models(task):
    """The model directories of a study's task; none without a study of it."""
    study = CONFIG.pretraining_study
    if study is None or task not in study.tasks:
        return []
    return [
        PATHS.study_model(task, start, share_name(share), seed)
        for start in study.initializations
        for share in study.train_fractions
        for seed in study.seeds
    ]
