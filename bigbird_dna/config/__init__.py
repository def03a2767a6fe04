"""The one declaration of the configuration; the workflow and the commands read the same files with it.

A configuration is a YAML file of nested sections, and a section is a stage's or a task's. Every key has a
default, unknown keys and wrong types are refused, and a section is frozen once made. Bases are "bp", lengths
of model input are "tokens".
"""

from bigbird_dna.config.chromatin import (
    DEEPSEA,
    SIMULATED,
    ChromatinConfig,
    ChromatinDataConfig,
    ChromatinEvaluationConfig,
    ChromatinTrainingConfig,
)
from bigbird_dna.config.data import GenomeConfig
from bigbird_dna.config.experiments import (
    LONGER,
    PRETRAINED,
    RANDOM,
    STUDY_STARTS,
    STUDY_TASKS,
    AblationConfig,
    AblationMechanism,
    StudyConfig,
    StudyStart,
    TablesConfig,
    share_name,
)
from bigbird_dna.config.long_range import LONG_RANGE_TASKS, LongRangeConfig
from bigbird_dna.config.mechanisms import LayerShape, Mechanism, find_mechanism, known_mechanisms
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.paths import RunPaths
from bigbird_dna.config.promoters import (
    DERIVED_SETS,
    NEGATIVE_SETS,
    PARTED_SETS,
    PLACED_SETS,
    NegativeSet,
    PromoterConfig,
    PromoterModelConfig,
    PromoterSequencesConfig,
    PromoterTrainingConfig,
    PromoterWindowsConfig,
)
from bigbird_dna.config.reading import as_in_a_file, complete, load_config, parse_config, read_values
from bigbird_dna.config.run import Config
from bigbird_dna.config.section import Section
from bigbird_dna.config.stages import STAGES, check_stages, stage_text, stage_values
from bigbird_dna.config.training import (
    CALIBRATION_METHODS,
    CalibrationMethod,
    OptimizerConfig,
    PretrainingConfig,
    StartConfig,
    TrainingConfig,
)

__all__ = [
    "CALIBRATION_METHODS",
    "DEEPSEA",
    "DERIVED_SETS",
    "LONGER",
    "LONG_RANGE_TASKS",
    "NEGATIVE_SETS",
    "PARTED_SETS",
    "PLACED_SETS",
    "PRETRAINED",
    "RANDOM",
    "SIMULATED",
    "STAGES",
    "STUDY_STARTS",
    "STUDY_TASKS",
    "AblationConfig",
    "AblationMechanism",
    "CalibrationMethod",
    "ChromatinConfig",
    "ChromatinDataConfig",
    "ChromatinEvaluationConfig",
    "ChromatinTrainingConfig",
    "Config",
    "EncoderConfig",
    "GenomeConfig",
    "LayerShape",
    "LongRangeConfig",
    "Mechanism",
    "NegativeSet",
    "OptimizerConfig",
    "PretrainingConfig",
    "PromoterConfig",
    "PromoterModelConfig",
    "PromoterSequencesConfig",
    "PromoterTrainingConfig",
    "PromoterWindowsConfig",
    "RunPaths",
    "Section",
    "StartConfig",
    "StudyConfig",
    "StudyStart",
    "TablesConfig",
    "TrainingConfig",
    "as_in_a_file",
    "check_stages",
    "complete",
    "find_mechanism",
    "known_mechanisms",
    "load_config",
    "parse_config",
    "read_values",
    "share_name",
    "stage_text",
    "stage_values",
]
