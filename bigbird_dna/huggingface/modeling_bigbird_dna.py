"""Model code of a checkpoint that `bigbird-dna export-hf` wrote; needs the Python package bigbird-dna.

Install the package, version 0.1.0 or later, before loading the checkpoint with `trust_remote_code=True`. Its
networks compute the outputs; this file only gives their classes the names in `config.json`.
"""

from bigbird_dna.huggingface.hub_models import (
    HubCausalLM,
    HubClassifier,
    HubEncoder,
    HubMaskedLM,
    HubModelConfig,
    HubQuestionAnswerer,
)


class BigBirdDnaConfig(HubModelConfig):
    """Configuration of the checkpoint."""


class BigBirdDnaModel(HubEncoder):
    """Hidden states."""

    config_class = BigBirdDnaConfig


class BigBirdDnaForMaskedLM(HubMaskedLM):
    """Logits of masked tokens."""

    config_class = BigBirdDnaConfig


class BigBirdDnaForCausalLM(HubCausalLM):
    """Logits of next tokens."""

    config_class = BigBirdDnaConfig


class BigBirdDnaForSequenceClassification(HubClassifier):
    """Logits of promoters, tracks, labels or classes."""

    config_class = BigBirdDnaConfig


class BigBirdDnaForQuestionAnswering(HubQuestionAnswerer):
    """Scores of answers."""

    config_class = BigBirdDnaConfig
