"""Theorems of the BigBird paper as a table: how many layers connect all tokens, and Turing machines in a sparse
decoder."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from bigbird_dna.config.run import Config
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.disk.tables import Schema, write_table
from bigbird_dna.papers.experiments.arms import Arm

FILES = ("theory/receptive_field.tsv", "theory/turing_machines.tsv")
RECEPTIVE_FIELD = Schema.of("count layers; fraction reached; text all")
TURING_MACHINES = Schema.of(
    "text machine tape state; count steps nodes; text as_simulated"
)
MOST_LAYERS, MOST_STEPS = 40, 1000


def arms(run: Config) -> list[Arm]:
    """Return nothing: no model is trained."""
    return []


def compare(run: Config, output: Path, device: str) -> list[str]:
    from bigbird_dna.papers.experiments import receptive_field
    from bigbird_dna.papers.experiments.turing_machines import (
        increment,
        palindromes,
        run_on_decoder,
        simulate,
    )

    tokens = min(run.encoder.max_length, receptive_field.MOST_TOKENS)
    fields = receptive_field.receptive_field(run.encoder, tokens, MOST_LAYERS)
    reach = pd.DataFrame(
        [
            (field.layers, field.fraction, "yes" if field.complete else "no")
            for field in fields
        ],
        columns=RECEPTIVE_FIELD.names,
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
    machines = pd.DataFrame(rows, columns=TURING_MACHINES.names)
    with into_directory(output) as directory:
        write_table(directory / "receptive_field.tsv", reach, RECEPTIVE_FIELD)
        write_table(directory / "turing_machines.tsv", machines, TURING_MACHINES)
    last = reach.iloc[-1]
    return [
        f"{run.encoder.attention}, {tokens:,} tokens: {last['reached']:.1%} of the pairs are connected after "
        f"{last['layers']} layers"
    ]
