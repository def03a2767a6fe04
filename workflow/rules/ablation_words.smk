"""Which trainings the ablation has, and the words of their commands."""

ABLATION = CONFIG.ablation
ABLATION_NAMES = [mechanism.name for mechanism in ABLATION.mechanisms]
ABLATION_CHECKPOINTS = str(PATHS.checkpoints / "ablation")
ABLATION_LENGTHS = [str(length) for length in ABLATION.lengths]
# In which order trainings are judged: of the same steps, of the same time, on longer inputs.
ABLATION_PARTS = ["steps", "time", *ABLATION_LENGTHS]


def ablation_model(mechanism, part, seed):
    """A model directory; the reference's training of the same steps is that of the same time too."""
    same = part == "time" and mechanism == ABLATION.reference and ABLATION.seconds is None
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


def ablation_encoder(wildcards):
    """A mechanism's own keys of the encoder."""
    changes = ABLATION.changes(wildcards.mechanism)
    return {f"encoder.{key}": value for key, value in changes.items()}


def ablation_settings(part_of):
    """What the pretraining of a mechanism has otherwise than the run's own."""

    def settings(wildcards):
        part = part_of(wildcards)
        training = ABLATION.training(part)
        values = {f"pretraining.{key}": value for key, value in training.items()}
        longest = max(CONFIG.encoder.positions, training["sequence_tokens"])
        return {**ablation_encoder(wildcards), "encoder.positions": longest, **values}

    return settings


def ablation_training(wildcards):
    """Words for a training; that of the same time has its own file, with its steps."""
    values = {} if wildcards.part == "time" else ablation_settings(lambda own: own.part)(wildcards)
    return ablation_sets({**values, "pretraining.seed": int(wildcards.seed)})


def ablation_distance(wildcards):
    """Words for a training on tracks, from fresh weights; what is far comes by attention alone, without layers across bins."""
    steps, layers = ABLATION.distance_steps, ABLATION.distance_layers
    return ablation_sets(
        {
            **ablation_encoder(wildcards),
            "encoder.positions": max(CONFIG.encoder.positions, ABLATION.tokens),
            **({"encoder.layers": layers} if layers else {}),
            "chromatin.model.initial": "random",
            "chromatin.model.bin_layers": 0,
            "chromatin.training.seed": int(wildcards.seed),
            **({"chromatin.training.steps": steps} if steps else {}),
        }
    )


def named_words(option, paths):
    """An option for each file by its name: words for a command."""
    return [f"{option}{name}={path}" for name, path in paths.items()]


# A run without tracks of its own has none to tell from afar.
ABLATION_PREDICTIONS = {
    name: model.with_name("predictions.npy")
    for name, model in ablation_models("distance").items()
    if ABLATION.distance and CONFIG.has_chromatin
}
