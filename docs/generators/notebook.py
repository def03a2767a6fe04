"""A notebook as a page: its texts, its code, and what the code gave."""

import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parent.parent / "tutorial.ipynb"


def cells(path: Path = NOTEBOOK) -> list[dict[str, Any]]:
    """The cells of a notebook, their sources as one text each."""
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [{**cell, "source": "".join(cell["source"])} for cell in found]


def page() -> str:
    """The notebook as Markdown."""
    parts = []
    for cell in cells():
        if cell["cell_type"] == "markdown":
            parts.append(cell["source"])
        else:
            parts.append(f"```python\n{cell['source']}\n```")
            parts += [
                f"```text\n{text}\n```"
                for text in map(output_text, cell["outputs"])
                if text
            ]
    return "\n\n".join(parts) + "\n"


def output_text(output: dict[str, Any]) -> str:
    """What an output shows as plain text."""
    text = output.get("text") or output.get("data", {}).get("text/plain") or ""
    return "".join(text).rstrip("\n")
