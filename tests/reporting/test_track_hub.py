"""`report track-hub`: what UCSC's browser and IGV require of a hub and a session."""

import json
import re
from pathlib import Path

import pybigtools
import pytest

from bigbird_dna.reporting.track_hub import LONGEST, SHORTEST
from tests.cli.command import Run, refused, silent

NAMES = ("scores.bw", "a-long-name-of-contributions+.bigWig", "calls.bed")


@pytest.fixture
def scans(tmp_path: Path) -> list[Path]:
    """Probabilities, contributions and calls with their provenance."""
    paths = [tmp_path / name for name in NAMES]
    for path, low in zip(paths, (0.0, -2.0), strict=False):
        named = path.with_suffix(".bw")
        pybigtools.open(str(named), "w").write(
            {"chrI": 90}, iter([("chrI", 0, 9, low), ("chrI", 9, 20, 0.75)])
        )
        named.rename(path)
    paths[2].write_text("## command bigbird-dna <call>\nchrI\t5\t6\tx\t900\t+\n")
    return paths


def stanzas(text: str) -> list[dict[str, str]]:
    found = [
        dict(line.split(" ", 1) for line in part.splitlines())
        for part in text.strip().split("\n\n")
    ]
    assert sum(map(len, found)) == len(
        [line for line in text.splitlines() if line]
    )  # no setting is repeated
    return found


def test_a_hub_has_what_browsers_require(
    run: Run, scans: list[Path], tmp_path: Path
) -> None:
    out, title = tmp_path / "hub", "A very long title of a hub"
    assert (
        silent(run)(
            "report track-hub",
            *scans,
            "--genome",
            "sacCer3",
            "--title",
            title,
            "-o",
            out,
        ).code
        == 0
    )
    hub, genome, *tracks = stanzas((out / "hub.txt").read_text())
    assert {"hub", "shortLabel", "longLabel", "email"} <= hub.keys() and hub[
        "useOneFile"
    ] == "on"
    assert genome == {"genome": "sacCer3"} and len(tracks) == 2
    for one in tracks:
        assert re.fullmatch("[A-Za-z][A-Za-z0-9_]*", one["track"])
        assert (out / one["bigDataUrl"]).read_bytes() == (
            tmp_path / one["bigDataUrl"]
        ).read_bytes()
        assert (
            all(0 <= int(part) <= 255 for part in one["color"].split(","))
            and one["color"].count(",") == 2
        )
        assert (out / f"{one['html']}.html").is_file()
        assert one["visibility"] in {"hide", "dense", "full"}
    for one in (hub, *tracks):
        assert (
            0 < len(one["shortLabel"]) <= SHORTEST
            and 0 < len(one["longLabel"]) <= LONGEST
        )
    assert (
        len({one["track"] for one in tracks})
        == 2
        == len({one["color"] for one in tracks})
    )
    assert [one["type"].split() for one in tracks] == [
        ["bigWig", "0", "0.75"],
        ["bigWig", "-2", "0.75"],
    ]
    assert [one.get("viewLimits") for one in tracks] == ["0:1", None] and tracks[1][
        "autoScale"
    ] == "on"
    session = json.loads((out / "igv_session.json").read_text())
    assert session["genome"] == "sacCer3"
    assert [(one["url"], one["type"]) for one in session["tracks"]] == [
        *((one["bigDataUrl"], "wig") for one in tracks),
        ("calls.bed", "annotation"),
    ]
    assert {path.name for path in out.iterdir() if path.name[0] != "."} >= {
        one["url"] for one in session["tracks"]
    }


def test_what_is_no_track_is_refused(
    run: Run, scans: list[Path], tmp_path: Path
) -> None:
    run, out = silent(run), ("--genome", "hg38", "-o", tmp_path / "hub")
    texts = {
        "empty.bed": "#\n",
        "line.bed": "chrI\tx\n",
        "text.bw": "chrI\n",
        "a.tsv": "x\n",
        "a b.bed": "c\t1\t2\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        code = 2 if name in ("a.tsv", "a b.bed") else 1
        refused(run("report track-hub", scans[0], tmp_path / name, *out), code, name)
    refused(run("report track-hub", scans[0], scans[0], *out), 2, NAMES[0])
    refused(
        run("report track-hub", scans[0], "--genome", "h/g", "-o", tmp_path / "hub"),
        2,
        "h/g",
    )
    refused(run("report track-hub", tmp_path / "none.bw", *out), 1, "none.bw")
    assert not (tmp_path / "hub").exists()
