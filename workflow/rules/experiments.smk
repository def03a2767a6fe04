"""The papers' experiments: one job each, which trains all models that are not finished, and compares them."""

# Each job writes the configuration to its own file, because a shared input file would be newer after any change.
os.environ.update(BIGBIRD_DNA_RUN=json.dumps(CONFIG.model_dump(mode="json")))

for _experiment, _files in EXPERIMENTS.items():

    rule:
        name:
            _experiment
        input:
            experiment_inputs(_experiment),
        output:
            [PATHS.report / file for file in _files],
        log:
            PATHS.log(_experiment),
        benchmark:
            PATHS.benchmark(_experiment)
        container:
            AROUND_TRAINING
        threads: 8
        resources:
            **training(1, 2880),
        params:
            experiment=_experiment,
            settings=experiment_settings(_experiment),
            directory=subpath(output[0], parent=True),
            launch=LAUNCH,
            device=device,
        shell:
            "printenv BIGBIRD_DNA_RUN > {log:q}.yaml; {params.launch} experiment run"
            " {params.experiment:q} {log:q}.yaml -o {params.directory:q} --threads {threads}"
            " --device {params.device:q} > {log:q} 2>&1"
