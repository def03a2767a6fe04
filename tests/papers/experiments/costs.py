"""Measurements of steps, as `experiment profile-training` writes them."""

import json
from pathlib import Path
from typing import Any


def write_cost(path: Path, seconds: float, *, tokens: int = 96, sequences: int = 4, **changes: Any) -> Path:
    row = {"tokens": tokens, "sequences": sequences, "seconds": seconds}
    row |= {"tokens_per_second": tokens * sequences / seconds, "peak_mib": None}
    values = {"format": 1, "attention": "bigbird", "attention_options": {}, "lengths": [row]}
    values |= {"device": "cpu", "threads": 1, "clock": "processor", **changes}
    path.write_text(json.dumps(values))
    return path
