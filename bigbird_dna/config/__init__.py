"""The configuration schema, used by workflow and commands to read the same files.

A configuration is a YAML file of nested sections, one per stage or task. Every key has a default, unknown
keys and wrong types are errors, and sections are immutable. Lengths are in "bp" for sequences and in "tokens"
for model inputs.

The names below are imported on first use, because help of commands needs neither configuration nor pydantic.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bigbird_dna.config.chromatin import DEEPSEA as DEEPSEA
    from bigbird_dna.config.chromatin import NOT_FILES as NOT_FILES
    from bigbird_dna.config.chromatin import SIMULATED as SIMULATED
    from bigbird_dna.config.chromatin import TSS as TSS
    from bigbird_dna.config.chromatin import ChromatinConfig as ChromatinConfig
    from bigbird_dna.config.chromatin import ChromatinDataConfig as ChromatinDataConfig
    from bigbird_dna.config.chromatin import (
        ChromatinEvaluationConfig as ChromatinEvaluationConfig,
    )
    from bigbird_dna.config.chromatin import (
        ChromatinTrainingConfig as ChromatinTrainingConfig,
    )
    from bigbird_dna.config.data import GenomeConfig as GenomeConfig
    from bigbird_dna.config.experiments import LONGER as LONGER
    from bigbird_dna.config.experiments import PRETRAINED as PRETRAINED
    from bigbird_dna.config.experiments import RANDOM as RANDOM
    from bigbird_dna.config.experiments import STUDY_STARTS as STUDY_STARTS
    from bigbird_dna.config.experiments import STUDY_TASKS as STUDY_TASKS
    from bigbird_dna.config.experiments import AblationConfig as AblationConfig
    from bigbird_dna.config.experiments import StudyStart as StudyStart
    from bigbird_dna.config.experiments import share_name as share_name
    from bigbird_dna.config.long_range import LongRangeConfig as LongRangeConfig
    from bigbird_dna.config.mechanisms import LayerShape as LayerShape
    from bigbird_dna.config.mechanisms import Mechanism as Mechanism
    from bigbird_dna.config.mechanisms import find_mechanism as find_mechanism
    from bigbird_dna.config.mechanisms import known_mechanisms as known_mechanisms
    from bigbird_dna.config.network import EncoderConfig as EncoderConfig
    from bigbird_dna.config.paths import RunPaths as RunPaths
    from bigbird_dna.config.promoters import DERIVED_SETS as DERIVED_SETS
    from bigbird_dna.config.promoters import NEGATIVE_SETS as NEGATIVE_SETS
    from bigbird_dna.config.promoters import PARTED_SETS as PARTED_SETS
    from bigbird_dna.config.promoters import PLACED_SETS as PLACED_SETS
    from bigbird_dna.config.promoters import ClassifierConfig as ClassifierConfig
    from bigbird_dna.config.promoters import PromoterConfig as PromoterConfig
    from bigbird_dna.config.promoters import (
        PromoterTrainingConfig as PromoterTrainingConfig,
    )
    from bigbird_dna.config.promoters import (
        PromoterWindowsConfig as PromoterWindowsConfig,
    )
    from bigbird_dna.config.promoters import control_name as control_name
    from bigbird_dna.config.reading import complete as complete
    from bigbird_dna.config.reading import load_config as load_config
    from bigbird_dna.config.reading import parse_config as parse_config
    from bigbird_dna.config.reading import read_values as read_values
    from bigbird_dna.config.run import STAGES as STAGES
    from bigbird_dna.config.run import Config as Config
    from bigbird_dna.config.run import check_stages as check_stages
    from bigbird_dna.config.run import stage_text as stage_text
    from bigbird_dna.config.run import stage_values as stage_values
    from bigbird_dna.config.section import CalibrationMethod as CalibrationMethod
    from bigbird_dna.config.section import LabelKind as LabelKind
    from bigbird_dna.config.section import Section as Section
    from bigbird_dna.config.sequences import LABEL_KINDS as LABEL_KINDS
    from bigbird_dna.config.sequences import SequencesConfig as SequencesConfig
    from bigbird_dna.config.sequences import (
        SequenceTrainingConfig as SequenceTrainingConfig,
    )
    from bigbird_dna.config.start_sites import StartSitesConfig as StartSitesConfig
    from bigbird_dna.config.training import FinetuningConfig as FinetuningConfig
    from bigbird_dna.config.training import KeepingConfig as KeepingConfig
    from bigbird_dna.config.training import LoraConfig as LoraConfig
    from bigbird_dna.config.training import OptimizerConfig as OptimizerConfig
    from bigbird_dna.config.training import PretrainingConfig as PretrainingConfig
    from bigbird_dna.config.training import StartConfig as StartConfig
    from bigbird_dna.config.training import TrainingConfig as TrainingConfig

# The smallest first: a model's own code needs no others.
_MODULES = (
    "section network mechanisms data training sequences promoters chromatin start_sites paths experiments "
    "long_range run reading"
)

if not TYPE_CHECKING:  # hidden from type checkers, which then report unknown names

    def __getattr__(name: str) -> object:
        if name not in _MODULES.split():
            for module in (
                import_module(f"{__name__}.{one}") for one in _MODULES.split()
            ):
                if hasattr(module, name):
                    return getattr(module, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
