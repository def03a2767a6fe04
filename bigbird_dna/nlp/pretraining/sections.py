"""The configuration of pretraining on documents."""

from typing import Literal

from pydantic import Field

from bigbird_dna.config import PretrainingConfig
from bigbird_dna.nlp.sections import TextTask, TextTrainingConfig


class TextPretrainingConfig(PretrainingConfig, TextTrainingConfig):
    """Masked-token training; the keys of both."""


class PretrainingTask(TextTask):
    """Masked-language modelling in bits per character (Table 10)."""

    kind: Literal["pretraining"]
    training: TextPretrainingConfig = TextPretrainingConfig()
    character_order: int = Field(
        default=8, ge=1, le=12, description="longest character n-gram that the model is compared with"
    )
