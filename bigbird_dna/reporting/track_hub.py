"""Track hub of scans for genome browsers: `hub.txt` of bigWig files for UCSC and IGV, and a session for IGV.

A hub takes BED only as bigBed, whose fields the bigWig library of this package does not declare. BED files
are therefore tracks of the session alone, `igv_session.json`, which IGV opens from the same directory.
"""

import json
import re
import shutil
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from bigbird_dna.disk.atomic import checksum
from bigbird_dna.disk.compression import read_lines
from bigbird_dna.disk.directories import into_directory
from bigbird_dna.errors import DataError, UsageError
from bigbird_dna.genome.intervals import read_bed
from bigbird_dna.reporting.result import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION

SHORTEST, LONGEST = 17, 76
"""Most characters of a short and of a long label in UCSC's browser."""
_COLORS = (BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE)
_FORMATS = {".bw": "bigwig", ".bigwig": "bigwig", ".bed": "bed", ".gz": "bed"}
_MAGIC = (
    b"\x26\xfc\x8f\x88",
    b"\x88\x8f\xfc\x26",
)  # of bigWig, in either order of bytes
_GENOME = re.compile(r"[A-Za-z0-9_.]{1,64}")


class HubTrack(NamedTuple):
    """A track: its name in the hub, file, format, color, smallest and largest value, and facts about it."""

    name: str
    file: str
    format: str
    color: str
    low: float
    high: float
    facts: Sequence[str]

    @property
    def label(self) -> str:
        """Short label: the name of the file, without its extension, cut to the length of the browser."""
        return self.file.removesuffix(".gz").rpartition(".")[0][:SHORTEST]

    @property
    def is_probability(self) -> bool:
        """Whether values are from 0 to 1, so that all such tracks have the same axis."""
        return 0 <= self.low <= self.high <= 1


def track_hub(
    scans: Sequence[Path], output: Path, *, genome: str, title: str = ""
) -> list[HubTrack]:
    """Write a track hub of bigWig and BED files to the directory `output`, and return its tracks.

    Parameters
    ----------
    scans
        bigWig files of `score-promoters`, `predict-tracks` or `explain`, and BED files of `call-promoters` or
        other commands. They are copied, so that the directory can be put on a web server as it is.
    genome
        The browser's name of the genome, such as hg38 or sacCer3; contigs must have the browser's names.
    title
        Short label of the hub; "": bigbird-dna.

    Raises
    ------
    UsageError
        Two files have the same name, a file has another extension, or the genome's name has other characters
        than letters, digits, `_` and `.`.
    DataError
        A file cannot be read, or has no values.
    """
    if not _GENOME.fullmatch(genome):
        raise UsageError(
            f"genome {genome!r}: expected the browser's name of an assembly, such as hg38"
        )
    names = [path.name for path in scans]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name}: two files have this name; rename one of them")
    tracks = [_track(path, number) for number, path in enumerate(scans)]
    shown = [track for track in tracks if track.format == "bigwig"]
    with into_directory(output, scans) as files:
        for path, track in zip(scans, tracks, strict=True):
            shutil.copyfile(path, files / track.file)
        for track in shown:
            facts = "".join(f"<li>{escape(fact)}</li>\n" for fact in track.facts)
            page = f"<h2>{escape(track.file)}</h2>\n<ul>\n{facts}</ul>\n"
            (files / f"{track.name}.html").write_text(page, encoding="utf-8")
        if shown:
            (files / "hub.txt").write_text(
                hub_text(shown, genome, title), encoding="utf-8"
            )
        session = json.dumps(
            {"genome": genome, "tracks": list(map(_session_track, tracks))}, indent=1
        )
        (files / "igv_session.json").write_text(f"{session}\n", encoding="utf-8")
    return tracks


def hub_text(tracks: Sequence[HubTrack], genome: str, title: str = "") -> str:
    """Return the hub's only file: stanzas of settings, separated by empty lines."""
    label = " ".join(title.split())[:SHORTEST] or "bigbird-dna"
    stanzas: list[dict[str, object]] = [
        {
            "hub": "bigbird_dna",
            "shortLabel": label,
            "longLabel": f"{label}: predictions of bigbird-dna models"[:LONGEST],
            "useOneFile": "on",
            "email": "nobody@example.org",
        },
        {"genome": genome},
    ]
    for track in tracks:
        scale = {"viewLimits": "0:1"} if track.is_probability else {"autoScale": "on"}
        stanzas.append(
            {
                "track": track.name,
                "type": f"bigWig {track.low:g} {track.high:g}",
                "shortLabel": track.label,
                "longLabel": f"{track.label}: prediction of a bigbird-dna model"[
                    :LONGEST
                ],
                "bigDataUrl": track.file,
                "html": track.name,
                "visibility": "full",
                "color": ",".join(
                    str(int(track.color[at : at + 2], 16)) for at in (1, 3, 5)
                ),
                **scale,
            }
        )
    texts = (
        "".join(f"{key} {value}\n" for key, value in stanza.items())
        for stanza in stanzas
    )
    return "\n".join(texts)


def _track(path: Path, number: int) -> HubTrack:
    format = _FORMATS.get(path.suffix.lower())
    if format is None or (path.suffix == ".gz" and not path.stem.endswith(".bed")):
        raise UsageError(
            f"{path}: expected a bigWig (.bw) or BED file; score with -o NAME.bw"
        )
    if not re.fullmatch(r"[\w.+-]+", path.name, re.ASCII):
        raise UsageError(
            f"{path}: a name must contain only letters, digits, '.', '_', '+' and '-'"
        )
    name = f"t{number + 1}_{re.sub(r'[^A-Za-z0-9]', '_', path.name)[:60]}"
    facts = [f"SHA-256 {checksum(path)}"]
    if format == "bed":
        count = sum(1 for _ in read_bed(path))
        if not count:
            raise DataError(f"{path}: the file contains no regions")
        lines = (line for _, line in read_lines(path))
        facts += [line.lstrip("# ") for line in lines if line.startswith("##")]
        return HubTrack(
            name, path.name, format, _COLORS[number % len(_COLORS)], 0.0, 1000.0, facts
        )
    low, high, covered = _summary(path)
    facts += [f"{covered:,} bp with values from {low:g} to {high:g}"]
    return HubTrack(
        name, path.name, format, _COLORS[number % len(_COLORS)], low, high, facts
    )


def _summary(path: Path) -> tuple[float, float, int]:
    """Return the smallest and largest value of a bigWig, and the number of bp that have one."""
    import pybigtools

    with path.open("rb") as stream:
        if stream.read(4) not in _MAGIC:  # pybigtools would print a message
            raise DataError(f"{path}: not a bigWig file")
    try:
        with pybigtools.open(str(path)) as opened:
            found = opened.info()["summary"] if opened.is_bigwig else None
    except Exception as error:
        raise DataError(f"{path}: not readable as bigWig: {error}") from None
    if not found or not found["basesCovered"]:
        raise DataError(f"{path}: not a bigWig with values")
    return float(found["min"]), float(found["max"]), int(found["basesCovered"])


def _session_track(track: HubTrack) -> dict[str, object]:
    """Return a track of an IGV session; the format is that of igv.js."""
    shown = {
        "name": track.label,
        "url": track.file,
        "format": track.format,
        "color": track.color,
    }
    if track.format == "bed":
        return {**shown, "type": "annotation"}
    scale = {"min": 0, "max": 1} if track.is_probability else {"autoscale": True}
    return {**shown, "type": "wig", **scale}
