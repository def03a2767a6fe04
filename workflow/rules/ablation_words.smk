"""Which trainings the ablation has, and the words of their commands."""

from bigbird_dna.papers.experiments.ablation_arms import (
    check_ablation,
    distance_keys,
    encoder_keys,
    pretraining_keys,
)

ABLATION = CONFIG.ablation
# Looking for mechanisms loads torch, and other targets may have an encoder that some mechanisms don't go with: only a
# run that is asked for the ablation, or a file of it, is checked. Snakemake says the targets to no Snakefile.
ABLATION_FILES = tuple(f"{place}/ablation/" for place in (PATHS.results, PATHS.report))
if any(word == "ablation" or word.startswith(ABLATION_FILES) for word in sys.argv[1:]):
    try:
        check_ablation(CONFIG)
    except BigBirdDnaError as error:
        sys.exit(f"bigbird-dna: error: {error}")
ABLATION_NAMES = [mechanism.name for mechanism in ABLATION.mechanisms]
# Each training has its own: under two names a mechanism can have settings that checkpoints can't be told apart by.
ABLATION_CHECKPOINTS = str(PATHS.checkpoints / "ablation/{mechanism}")
ABLATION_LENGTHS = [str(length) for length in ABLATION.lengths]
# In which order trainings are judged: of the same steps, of the same time, on longer inputs.
ABLATION_PARTS = ["steps", "time", *ABLATION_LENGTHS]


def ablation_model(mechanism, part, seed):
    """A model directory; the reference's training of the same steps is that of the same time too."""
    same = part == "time" and mechanism == ABLATION.reference and ABLATION.time_budget_s is None
    return PATHS.ablation_model(mechanism, "steps" if same else part, seed)


def ablation_models(part):
    """The model directories of a part, by their names in the report."""
    return {
        f"{name}-{seed}": ablation_model(name, part, seed)
        for name in ABLATION_NAMES
        for seed in ABLATION.seeds
    }


def ablation_sets(values):
    """Overrides of a configuration, their values as JSON: words for a command."""
    said = [f"{key}={json.dumps(value)}" for key, value in values.items()]
    return [word for text in said for word in ("--set", text)]


def ablation_cost_settings(wildcards):
    """Words for the measurement of a step."""
    return ablation_sets(encoder_keys(CONFIG, wildcards.mechanism))


def ablation_plan_settings(wildcards):
    """Words for the file of a training of the same time."""
    return ablation_sets(pretraining_keys(CONFIG, wildcards.mechanism, "time"))


def ablation_training(wildcards):
    """Words for a training; that of the same time has its own file, with its steps."""
    timed = wildcards.part == "time"
    values = {} if timed else pretraining_keys(CONFIG, wildcards.mechanism, wildcards.part)
    return ablation_sets({**values, "pretraining.seed": int(wildcards.seed)})


def ablation_distance(wildcards):
    """Words for a training on tracks."""
    values = distance_keys(CONFIG, wildcards.mechanism)
    return ablation_sets({**values, "chromatin.training.seed": int(wildcards.seed)})


def named_words(option, paths):
    """An option for each file by its name: words for a command."""
    return [f"{option}{name}={path}" for name, path in paths.items()]


# A run without tracks of its own has none to tell from afar.
ABLATION_PREDICTIONS = {
    name: model.with_name("predictions.npy")
    for name, model in ablation_models("distance").items()
    if ABLATION.long_range_tracks and CONFIG.has_chromatin
}
