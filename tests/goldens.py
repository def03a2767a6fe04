"""Outputs of the commands, recorded with one state of the code and compared with another on the same machine.

    python -m tests.goldens record OLD        # in a checkout with a finished `make demo`
    python -m tests.goldens record NEW [NAME …] # in another one, with the same results/demo
    python -m tests.goldens compare OLD NEW

Text files (tables, BED, bedGraph, VCF) must be equal byte for byte, except for lines that name the version or the
command; bigWig, Parquet, arrays and JSON by value. Also compares the results of two runs of the demo:

    python -m tests.goldens compare OLD/results/demo NEW/results/demo
"""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pybigtools
import pysam

DEMO = Path("results/demo")
INPUTS = Path("results/goldens-input")
EXAMPLE = "resources/examples/yeast_VII_20kb.fa.gz"
GENOME = f"{DEMO}/simulated/genome.fa.gz"
CHROMATIN = f"{DEMO}/models/chromatin-calibrated"
START_SITES = f"{DEMO}/models/start-sites"
LANGUAGE = f"{DEMO}/models/pretrained"

COMMANDS = {
    # name of the output: words of the command
    "yeast.tsv": f"score-promoters yeast-promoters {EXAMPLE}",
    "yeast.bed": f"score-promoters yeast-promoters {EXAMPLE} --stride 50",
    "yeast.bedgraph": f"score-promoters yeast-promoters {EXAMPLE}",
    "yeast.bw": f"score-promoters yeast-promoters {EXAMPLE}",
    "yeast.parquet": f"score-promoters yeast-promoters {EXAMPLE} --strand -",
    "yeast-best.tsv": f"score-promoters yeast-promoters {EXAMPLE} --per-record",
    "yeast-records.tsv": f"score-promoters yeast-promoters {INPUTS}/records.fa --max-n 1",
    "pombe.tsv": f"score-promoters pombe-promoters {EXAMPLE}",
    "window.tsv": f"score-promoters yeast-promoters-window {EXAMPLE} --stride 50",
    "window.bed": f"score-promoters yeast-promoters-window {EXAMPLE} --stride 40 --strand +",
    "window.bedgraph": f"score-promoters yeast-promoters-window {EXAMPLE} --stride 40",
    "window.bw": f"score-promoters yeast-promoters-window {EXAMPLE} --stride 40",
    "window.parquet": f"score-promoters yeast-promoters-window {EXAMPLE} --stride 40",
    "window-regions.tsv": f"score-promoters yeast-promoters-window {EXAMPLE} --regions {INPUTS}/example.bed",
    "window-records.tsv": f"score-promoters yeast-promoters-window {INPUTS}/records.fa",
    "window-best.tsv": f"score-promoters yeast-promoters-window {EXAMPLE} --per-record",
    "calls.bed": f"call-promoters yeast-promoters {EXAMPLE} --fdr 1",
    "calls.tsv": f"call-promoters yeast-promoters {EXAMPLE}",
    "calls-pombe.parquet": f"call-promoters pombe-promoters {EXAMPLE} --fdr 1 --strand +",
    "tracks.tsv": f"predict-tracks {CHROMATIN} {INPUTS}/demo.bed --reference {GENOME} --calibrated",
    "tracks.bed": f"predict-tracks {CHROMATIN} {INPUTS}/demo.bed --reference {GENOME} --center-fraction 0.5",
    "tracks.parquet": f"predict-tracks {CHROMATIN} {INPUTS}/demo.bed --reference {GENOME} --summary mean",
    "tracks.bw": f"predict-tracks {CHROMATIN} {INPUTS}/demo.bed --reference {GENOME} --tracks START",
    "effects.vcf": f"score-variants {CHROMATIN} {INPUTS}/variants.vcf --reference {GENOME} --tracks *",
    "effects.tsv": f"score-variants {CHROMATIN} {INPUTS}/variants.vcf --reference {GENOME} --calibrated",
    "effects-starts.vcf": f"score-variants {START_SITES} {INPUTS}/variants.vcf --reference {GENOME}",
    "effects-language.tsv": f"score-variants {LANGUAGE} {INPUTS}/variants.vcf --reference {GENOME}",
    "embeddings.parquet": f"embed yeast {INPUTS}/windows.fa",
    "explained": f"explain yeast-promoters-window {INPUTS}/two.fa --output",
    "explained-starts": f"explain {START_SITES} {INPUTS}/one.bed --reference {GENOME} --output",
}


def write_inputs() -> None:
    """Write records, regions and variants of every kind, from the bundled example and the demo's genome."""
    INPUTS.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    title, text = gzip.decompress(Path(EXAMPLE).read_bytes()).decode().split("\n", 1)
    name, example = title[1:].split()[0], text.replace("\n", "")

    starts = rng.integers(0, len(example) - 400, 200)
    windows = [f">window{i}\n{example[s : s + 400]}\n" for i, s in enumerate(starts)]
    (INPUTS / "windows.fa").write_text("".join(windows))
    (INPUTS / "two.fa").write_text("".join(windows[:2]))
    lengths = [150, 399, 400, 401, 1000, 2900, 3100, 5000]
    records = [f">record{n} of {n} bp\n{example[n : 2 * n]}\n" for n in lengths]
    half = f">unknown\n{example[:300]}{'N' * 700}{example[:300].lower()}\n"
    (INPUTS / "records.fa").write_text("".join(records) + half)
    (INPUTS / "example.bed").write_text(f"{name}\t2000\t2600\n{name}\t9000\t9100\n")

    with pysam.FastaFile(GENOME) as file:
        genome = {name: file.fetch(name).upper() for name in ("demo5", "demo6")}
    regions = [("demo6", 40_000 + 1_000 * i, 40_200 + 1_020 * i) for i in range(30)]
    regions += [("demo6", 559_700, 559_800), ("demo6", 559_800, 560_000), ("x", 1, 9)]
    lines = [f"{c}\t{s}\t{e}\tregion{i}\n" for i, (c, s, e) in enumerate(regions)]
    (INPUTS / "demo.bed").write_text("".join(lines))
    (INPUTS / "one.bed").write_text("demo6\t60000\t60200\tone\n")

    lines = ["##fileformat=VCFv4.3\n"]
    lines += [
        f"##contig=<ID={c},length={len(genome[c])}>\n" for c in ("demo5", "demo6")
    ]
    lines += ['##INFO=<ID=END,Number=1,Type=Integer,Description="End">\n']
    lines += ['##ALT=<ID=DEL,Description="Deletion">\n']
    lines += ['##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">\n']
    lines += ["#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tone\ttwo\n"]
    other = {"A": "G", "C": "T", "G": "A", "T": "C", "N": "N"}
    for contig in ("demo5", "demo6"):
        sequence = genome[contig]
        for number in range(12):
            at = 20_000 + 4_000 * number
            ref, info, phase = sequence[at], ".", "0|1\t1|1"
            following = sequence[at : at + 4]
            kinds = [
                (ref, other[ref]),
                (ref, other[ref]),
                (following[:2], "".join(other[base] for base in following[:2])),
                (ref, f"{ref}ACG"),
                (following, ref),
                (ref, f"{other[ref]},{ref}TT"),
                (ref, "<DEL>"),
                (ref, "*"),
                (following, f"{following[0]}GATTACA"),
                (ref, "."),
                (following, f"{ref},<DEL>,{other[ref]}{following[1:]}"),
                (ref, f"{ref}{'ACGT' * 20}"),
            ]
            given, alt = kinds[number]
            if number == 6:
                info = f"END={at + 50}"
            row = [contig, at + 1, f"v{number}", given, alt, ".", "PASS", info, "GT"]
            lines.append("\t".join(map(str, row)) + f"\t{phase}\n")
            if number == 0:  # a phased neighbor
                near = sequence[at + 3]
                row = [contig, at + 4, "near", near, other[near], 7, ".", ".", "GT"]
                lines.append("\t".join(map(str, row)) + "\t0|1\t0/1\n")
    (INPUTS / "variants.vcf").write_text("".join(lines))


def record(folder: Path, *names: str) -> None:
    """Write the outputs and messages of all commands, or those named, into a folder."""
    write_inputs()
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or COMMANDS:
        words = COMMANDS[name]
        command = words.removesuffix(" --output").split()
        done = subprocess.run(
            ["bigbird-dna", *command, "-o", folder / name],
            capture_output=True,
            text=True,
            check=False,
        )
        print(done.returncode, name, flush=True)
        if done.returncode:
            (folder / f"{name}.error").write_text(done.stderr)


def content(path: Path) -> object:
    """Return what must be equal in a file: lines of texts, values of other formats."""
    suffix = path.suffix
    if suffix == ".parquet":
        return pd.read_parquet(path).map(str).to_dict("list")
    if suffix == ".npy":
        return np.load(path).tolist()
    if suffix in (".npz", ".safetensors"):
        return path.read_bytes() if suffix == ".safetensors" else arrays(path)
    if suffix == ".bw":
        with pybigtools.open(str(path)) as file:
            return {name: list(file.records(name)) for name in file.chroms()}
    if suffix in (".json", ".jsonl"):
        return [json.loads(line) for line in [path.read_text()] if suffix == ".json"]
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    told = (b"##bigbird", b"##source", b"## ", b"##BBD", b"##command", b"##version")
    return [line for line in data.splitlines() if not line.startswith(told)]


def arrays(path: Path) -> dict[str, object]:
    with np.load(path) as file:
        return {name: file[name].tolist() for name in file.files}


def files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if (
            path.is_file()
            and not path.name.startswith(".")
            and "logs" not in path.parts
        ):
            yield path.relative_to(folder)


def compare(old: Path, new: Path) -> int:
    """Print the files that are missing or different; return their number."""
    first, second = set(files(old)), set(files(new))
    missing = sorted(first - second)
    different = [
        path
        for path in sorted(first & second)
        if content(old / path) != content(new / path)
    ]
    for path in missing:
        print(f"missing: {path}")
    for path in sorted(second - first):
        print(f"new: {path}")
    for path in different:
        print(f"different: {path}")
    print(f"{len(first & second) - len(different)} files are equal")
    return len(missing) + len(different)


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(Path(sys.argv[2]), *sys.argv[3:])
    else:
        sys.exit(min(compare(Path(sys.argv[2]), Path(sys.argv[3])), 1))
