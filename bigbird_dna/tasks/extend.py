"""A model directory for longer inputs, made from another one."""

from pathlib import Path
from typing import Any

from bigbird_dna.directories import check_directory
from bigbird_dna.errors import UsageError
from bigbird_dna.model.catalogue import find_model
from bigbird_dna.model.directory import load, save
from bigbird_dna.model.positions import Extension
from bigbird_dna.tasks.provenance import read_provenance


def extend_model(path: Path, output: Path, positions: int, method: Extension) -> None:
    """Write the model of `path`, with its positions extended to `positions` tokens, to `output`.

    `provenance.json` says what was done to which model and holds that model's own provenance; `metrics.json`
    holds no figures, as none were measured at the new length.

    Raises
    ------
    UsageError
        `output` is the model itself or can't be written, or the model has so many positions already.
    ModelError
        As of `bigbird_dna.model.directory.load`.
    """
    path = find_model(path)
    check_directory(output, [path])
    before = load(path)
    if before.config.positions == positions:
        raise UsageError(f"{path}: has {positions} positions already")
    origin = read_provenance(path)
    provenance: dict[str, Any] = {
        "extended_from": {
            "model": path.name,
            "sha256": before.sha256,
            "positions": before.config.positions,
            "provenance": origin,
        },
        "positions": positions,
        "method": method,
    }
    # Fine-tuning reads there whether what is held out was seen.
    provenance |= {key: origin[key] for key in ("contigs", "stretches") if key in origin}
    metrics = {"note": f"nothing was measured since the positions were extended to {positions}"}
    save(output, load(path, positions=positions, extend=method), provenance, metrics, {})
