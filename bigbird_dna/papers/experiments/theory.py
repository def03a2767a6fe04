"""Theorems of the BigBird paper as a table: how many layers connect all tokens, and Turing machines in a sparse
decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bigbird_dna.config.mechanisms import OF_PATTERNS
from bigbird_dna.config.network import EncoderConfig
from bigbird_dna.config.run import Config
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import write_tsv
from bigbird_dna.errors import ConfigError
from bigbird_dna.model.mechanism import attention_pattern
from bigbird_dna.papers.experiments.shared import Trainings
from bigbird_dna.papers.experiments.turing_machines import (
    increment,
    palindromes,
    run_on_decoder,
    simulate,
)

TURING_MACHINES = ["machine", "tape", "state", "steps", "nodes", "as_simulated"]
MOST_LAYERS, MOST_STEPS, MOST_TOKENS = 40, 1000, 1024


def receptive_field(
    encoder: EncoderConfig, tokens: int, most_layers: int
) -> list[NDArray[np.bool_]]:
    """Return the receptive fields of 1, 2, … layers, (L, L), until all tokens are connected.

    Row i marks the tokens on which the vector of token i can depend: a layer propagates information along the
    edges of its attention graph (all heads together), and a token keeps its own. Extra globals are the first
    of the L tokens. `ConfigError` for attention that is not of blocks.
    """
    if encoder.attention not in OF_PATTERNS:
        raise ConfigError(
            f"encoder.attention {encoder.attention}: its graph depends on the tokens; choose one of "
            f"{', '.join(OF_PATTERNS)}"
        )
    length = tokens + encoder.num_global_tokens
    field, fields = np.eye(length, dtype=np.float32), []
    for layer in range(most_layers):
        if encoder.attention == "full":
            edges: Any = np.ones((length, length))
            edges = np.tril(edges) if encoder.causal else edges
        else:
            mask = attention_pattern(encoder).mask(length, encoder.heads, layer)
            edges = mask.any(axis=0) | np.eye(length, dtype=bool)
        field = (edges.astype(np.float32) @ field > 0).astype(np.float32)
        fields.append(field > 0)
        if field.all():
            break
    return fields


def run(config: Config, trainings: Trainings, output: Path) -> list[str]:
    """Write the receptive fields of the run's encoder, and Turing machines on the sparse decoder."""
    tokens = min(config.encoder.max_length, MOST_TOKENS)
    fields = receptive_field(config.encoder, tokens, MOST_LAYERS)
    reach = pd.DataFrame(
        {
            "layers": np.arange(1, len(fields) + 1),
            "reached": [field.mean() for field in fields],
            "all": ["yes" if field.all() else "no" for field in fields],
        }
    )
    rows = []
    for name, machine, tapes in (
        ("increment", increment(), ("0", "111", "1011")),
        ("palindromes", palindromes(), ("abba", "abab", "babab")),
    ):
        for tape in tapes:
            result = run_on_decoder(machine, tape, MOST_STEPS)
            steps = len(result.steps)
            nodes = steps * (steps + 1) // 2
            same = result == simulate(machine, tape, MOST_STEPS)
            rows.append(
                (name, tape, result.state, steps, nodes, "yes" if same else "no")
            )
    machines = pd.DataFrame(rows, columns=TURING_MACHINES)
    with into_directory(output) as directory:
        write_tsv(directory / "receptive_field.tsv", reach)
        write_tsv(directory / "turing_machines.tsv", machines)
    last = reach.iloc[-1]
    return [
        f"{config.encoder.attention}, {tokens:,} tokens: {last['reached']:.1%} of the pairs are connected after "
        f"{last['layers']} layers"
    ]
