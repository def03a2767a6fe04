"""The bundled models on the bundled example: what the commands write is what they wrote when the files were stored.

Columns and texts must be equal; numbers may differ in the last digits between processors. After an intended change,
store the outputs anew: `python -m tests.test_end_to_end`.
"""

import gzip
import re
import tempfile
from pathlib import Path

import pytest

from tests.cli.command import invoke

EXAMPLE = "resources/examples/yeast_VII_20kb.fa.gz"
STORED = Path("tests/golden_outputs")
REGION = f"{STORED}/regions.bed"
VARIANTS = f"{STORED}/variants.vcf"

COMMANDS = {
    "calls.bed": f"call-promoters yeast-promoters {EXAMPLE} --fdr 0.5",
    "windows.tsv": f"score-promoters yeast-promoters-window {EXAMPLE} --regions {REGION}",
    "effects.vcf": f"score-variants yeast-promoters {VARIANTS} --reference",
}
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def run(name: str, output: Path, scratch: Path) -> None:
    words = COMMANDS[name].split()
    if words[-1] == "--reference":
        reference = scratch / "example.fa"
        reference.write_bytes(gzip.decompress(Path(EXAMPLE).read_bytes()))
        words.append(str(reference))
    invoke(*words, "-o", output)


def rows(path: Path) -> list[str]:
    """Return the lines of a table without those about the software."""
    return [line for line in path.read_text().splitlines() if line[:2] != "##"]


@pytest.mark.parametrize("name", COMMANDS)
def test_outputs_are_those_stored(name: str, tmp_path: Path) -> None:
    run(name, tmp_path / name, tmp_path)
    written, stored = rows(tmp_path / name), rows(STORED / name)
    assert [NUMBER.sub("#", row) for row in written] == [
        NUMBER.sub("#", row) for row in stored
    ]
    for new, old in zip(written, stored, strict=True):
        numbers = [float(value) for value in NUMBER.findall(new)]
        expected = [float(value) for value in NUMBER.findall(old)]
        assert numbers == pytest.approx(expected, rel=1e-3, abs=1e-4), new


if __name__ == "__main__":
    for name in COMMANDS:
        with tempfile.TemporaryDirectory() as scratch:
            run(name, STORED / name, Path(scratch))
