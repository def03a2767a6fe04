"""Which models and comparators the paper's tables have, and the words of their commands."""

from bigbird_dna.baselines.comparators.names import NETWORK_NAMES

TABLES = CONFIG.tables
TABLE_CHECKPOINTS = str(PATHS.checkpoints / "tables")
TABLE_SETS = TABLES.negative_sets or [
    name for name in CONFIG.promoters.windows.negative_sets if name != "given"
]


def table_comparators(task, name):
    """The directories of the comparators of a table."""
    return [
        PATHS.table_comparator(task, name, comparator, seed)
        for comparator in getattr(TABLES, task)
        # Those that are trained have a model for each seed, the others for the first.
        for seed in (TABLES.seeds if comparator in NETWORK_NAMES else TABLES.seeds[:1])
    ]


def table_models(task, name):
    """The directories of the language models of a table."""
    return [
        PATHS.table_model(task, name, start, seed)
        for start in TABLES.starts
        for seed in TABLES.seeds
    ]


def table_settings(wildcards, section, further=()):
    """What a language model of a table has otherwise than the task's own: words for its command."""
    values = {"model.initial": wildcards.start, "training.seed": wildcards.seed}
    said = [f"{section}.{key}={value}" for key, value in values.items()]
    return [word for text in (*said, *further) for word in ("--set", text)]


def table_sides(wildcards):
    """The windows of a size: divided at the TSS as those of the run."""
    windows, bases = CONFIG.promoters.windows, int(wildcards.bases)
    upstream = round(bases * windows.upstream / windows.length)
    return [
        f"promoters.windows.upstream={upstream}",
        f"promoters.windows.downstream={bases - upstream}",
    ]


def comparator_options(wildcards):
    """Options of a comparator beside its seed: those of networks, and of the scan with known motifs."""
    steps = [f"--steps={TABLES.steps}"] if TABLES.steps else []
    taxon = [f"--taxon={TABLES.taxon}"] if wildcards.comparator == "motifs" else []
    return (steps if wildcards.comparator in NETWORK_NAMES else []) + taxon


def evaluation_settings(section):
    """The keys of an evaluation, which the files of other stages don't have: words for a command."""
    values = getattr(CONFIG, section).evaluation.model_dump(mode="json")
    said = [f"{section}.evaluation.{key}={json.dumps(value)}" for key, value in values.items()]
    return [word for text in said for word in ("--set", text)]
