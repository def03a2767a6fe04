"""The application: every command under its name and group.

`COMMANDS` is the one list of them. A command is a function of a module of this folder; its signature is the
command's arguments and options, its docstring the help.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version

import typer

PREDICT, TRAIN, SHARE, GROUPS = "Predict", "Train", "Evaluate and share", "Groups of commands"
"""The panels of `--help`, in this order."""

TOP: Mapping[str, Mapping[str, str]] = {
    PREDICT: {
        "score-promoters": "predict.score_promoters",
        "predict-tracks": "predict.predict_tracks",
        "score-variants": "predict.score_variants",
        "generate": "generate.generate",
        "merge-shards": "predict.merge_pieces",
    },
    TRAIN: {
        "check-config": "prepare.check_config",
        "simulate": "prepare.simulate",
        "pretrain": "training.pretrain",
        "finetune-promoter": "training.finetune_promoter",
        "finetune-chromatin": "chromatin.finetune_chromatin",
    },
    SHARE: {
        "auc-report": "reports.auc_report",
        "fetch-model": "publishing.fetch_model",
        "import-hf": "exchange.import_hf",
        "export-hf": "exchange.export_hf",
    },
}
"""Panel → name of a command → its module and function."""

BELOW: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "prepare": (
        "Prepare data: genomes, promoters, sequences, chromatin tracks, tokens.",
        {
            "fetch": "prepare.fetch",
            "reference": "prepare.prepare_reference",
            "promoters": "prepare.prepare_promoters",
            "promoter-windows": "prepare.prepare_windows",
            "sequences": "prepare.prepare_sequences",
            "deepsea": "chromatin.unpack_deepsea",
            "chromatin": "chromatin.prepare_chromatin",
            "filter-bins": "homology.drop_similar_bins",
            "contig": "prepare.extract",
            "tokenizer": "tokens.train_tokenizer",
            "tokens": "tokens.tokenize",
            "token-stats": "tokens.describe_tokens",
        },
    ),
    "train": (
        "Train baselines; models: pretrain, finetune-promoter and finetune-chromatin, without this word.",
        {
            "baseline-language": "training.fit_pretraining_baseline",
            "baseline-promoter": "training.fit_promoter_baseline",
            "baseline-chromatin": "chromatin.fit_chromatin_baseline",
            "comparator-promoter": "comparators.fit_promoter_comparator",
            "comparator-chromatin": "comparators.fit_chromatin_comparator",
        },
    ),
    "evaluate": (
        "Evaluate models and baselines on held-out data.",
        {
            "pretraining": "training.evaluate_pretraining",
            "across-tokenizers": "training.compare_pretraining",
            "promoters": "reports.report_promoters",
            "promoter-threshold": "predict.choose_threshold",
            "test-bins": "chromatin.predict_bins",
            "variants": "reports.report_variants",
            "samples": "generate.report_samples",
            "probe": "study.probe_promoters",
            "nearest-fasta": "homology.find_nearest",
            "nearest-promoters": "homology.find_nearest_promoters",
            "nearest-bins": "homology.find_nearest_bins",
            "promoters-by-similarity": "homology.report_promoter_similarity",
            "bins-by-similarity": "homology.report_bin_similarity",
        },
    ),
    "report": (
        "Tables, plots and the page of a run, from its files.",
        {
            "run": "pages.report_run",
            "summary": "pages.summarize",
            "pretraining": "reports.report_pretraining",
            "paper-table": "tables.report_table",
            "plot-loss": "pages.draw_loss",
            "plot-scores": "pages.draw_scores",
            "plot-attention": "pages.draw_attention",
        },
    ),
    "model": (
        "Calibrate, combine, extend and package trained models.",
        {
            "calibrate-promoter": "training.calibrate_promoter",
            "calibrate-chromatin": "chromatin.calibrate_chromatin",
            "ensemble": "exchange.combine_models",
            "extend-context": "exchange.extend_positions",
            "to-float16": "publishing.compact_model",
            "package": "publishing.publish_model",
        },
    ),
    "experiment": (
        "The experiments of the papers: mechanisms, pretraining, long inputs.",
        {
            "profile-training": "ablation.measure_training",
            "match-compute": "ablation.plan_same_time",
            "score-masked": "ablation.judge_models",
            "ablation-report": "ablation.report_ablation",
            "pretraining-study": "study.report_study",
            "receptive-field": "theory.show_reach",
            "byte-lm": "density.train_density",
            "lra-data": "long_range.make_long_range",
            "lra-train": "long_range.train_long_range",
            "lra-report": "long_range.report_long_range",
        },
    ),
    "nlp": (
        "Pretrain and fine-tune on text, with the extra nlp.",
        {
            name: f"nlp.{name}"
            for name in ("prepare", "pretrain", "finetune", "predict", "evaluate", "report")
        },
    ),
    "benchmark": (
        "Time and memory of this software and of others, measured in turn.",
        {name: f"benchmark.{name}" for name in ("attention", "encoder", "models", "batches")},
    ),
}
"""Group → its help, and name of a command → its module and function."""

app = typer.Typer(
    name="bigbird-dna",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"bigbird-dna {version('bigbird-dna')}")
        raise typer.Exit


@app.callback()
def _options(version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True)) -> None:
    """Sparse-attention DNA language models: from a reference genome to promoter scores."""


def _register(below: typer.Typer, commands: Mapping[str, str], panel: str | None = None) -> None:
    for name, place in commands.items():
        module, _, function = place.partition(".")
        command = getattr(import_module(f"bigbird_dna.cli.{module}"), function)
        below.command(name, rich_help_panel=panel)(command)


for _panel, _commands in TOP.items():
    _register(app, _commands, _panel)
for _name, (_help, _commands) in BELOW.items():
    _group = typer.Typer(no_args_is_help=True, help=_help)
    _register(_group, _commands)
    app.add_typer(_group, name=_name, rich_help_panel=GROUPS)
