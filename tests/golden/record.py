"""Record what the package gives through its public interface, and compare two records.

    python tests/golden/record.py record OUTPUT.json [--only NAME ...] [--demo results/demo]
    python tests/golden/record.py compare ONE.json OTHER.json

A change that must change nothing has the same record before and after. Last digits differ between
processors, so both are made on one machine, and nothing of a record is kept in the repository. Recorded
are values and bytes alone, reached by commands, by Snakemake and by the public names of `bigbird_dna`: where
a module lies and what a private function is called is not seen.
"""

import argparse
import hashlib
import inspect
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
if __name__ == "__main__":  # run by its path, of this checkout and no other
    sys.path[0] = str(REPOSITORY)
BIN = Path(sys.executable).parent
Entries = Iterator[tuple[str, str]]
AXIAL_PLANS = ("horizontal", "rowmajor", "vertical")
# Times, and what has them: they differ from run to run.
UNSTABLE = ("logs", "benchmarks", "checkpoints", ".snakemake")
TIMES = re.compile(rb'"(?:seconds|tokens_per_second|elapsed|date|started|finished)[a-z_]*": [^,}\n]+')
WORDS = re.compile(r"^\s*(?:input|output|log): .*$|^(?:local)?rule (\w+):$|^Shell command: ", re.MULTILINE)


def _digest(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def _run(*words: object, home: Path | None = None, errors: bool = False) -> str:
    """What a command of this environment prints; with `errors` also what it says of a failure."""
    environment = os.environ | {"COLUMNS": "120", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(REPOSITORY)
    command = [str(BIN / str(words[0])), *map(str, words[1:])]
    done = subprocess.run(command, cwd=home or REPOSITORY, env=environment, capture_output=True, text=True)
    if done.returncode != 0 and not errors:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + (done.stderr if errors else "")


def _files(directory: Path, under: str = "") -> Entries:
    """The checksum of each file of a directory, without times."""
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        if path.is_file() and name.parts[0] not in UNSTABLE:
            yield f"{under}{name}", _digest(TIMES.sub(b"", path.read_bytes()))


def help_texts() -> Entries:
    """The help of every command and group."""

    def one(*words: str) -> Entries:
        text = _run("bigbird-dna", *words, "--help")
        yield " ".join(words) or "bigbird-dna", text
        if "COMMAND [ARGS]" in text:
            for name in re.findall(r"^│ ([a-z][a-z0-9-]+) ", text.partition("Options")[2], re.MULTILINE):
                yield from one(*words, name)

    yield from one()


def public_names() -> Entries:
    """The public names with their signatures, and those of public methods."""
    import bigbird_dna

    for name in bigbird_dna.__all__:
        value = getattr(bigbird_dna, name)
        yield name, str(inspect.signature(value)) if callable(value) else str(type(value))
        if inspect.isclass(value):
            for method, function in inspect.getmembers(value, callable):
                if not method.startswith("_"):
                    yield f"{name}.{method}", _signature(function)
    yield "attentions", " ".join(sorted(bigbird_dna.ATTENTIONS))


def _signature(function: Callable[..., Any]) -> str:
    try:
        return str(inspect.signature(function))
    except ValueError:
        return "none"


def _letters(length: int, seed: int) -> str:
    return "".join(random.Random(seed).choices("ACGT", k=length))


def bundled_models() -> Entries:
    """Files of the bundled models, and what they give for fixed inputs in every format."""
    import numpy as np

    import bigbird_dna

    yield from _files(REPOSITORY / "resources/models", "resources/models/")
    promoters, encoder = bigbird_dna.load("yeast-promoters"), bigbird_dna.load("yeast")
    windows = [_letters(400, seed) for seed in range(200)]
    for calibrated in (False, True):
        found = promoters.predict(windows, calibrated=calibrated, device="cpu")
        yield f"predict, calibrated {calibrated}", _digest(found.tobytes())
    for model in (promoters, encoder):
        for per_base in (False, True):
            found = model.embed(windows[:5], per_base=per_base, device="cpu")
            yield f"embed {model.task} {per_base}", _digest(np.asarray(found).tobytes())
    for sides in ({"left": windows[0]}, {"left": windows[0][:99], "right": windows[1][:99]}):
        written = encoder.generate(2, 60, rounds=5, seed=3, device="cpu", **sides)
        yield f"generate {' '.join(sides)}", " ".join(written)
    with TemporaryDirectory() as name:
        yield from _scored_files(Path(name))


def _scored_files(home: Path) -> Entries:
    """Scores and effects of a bundled model in every format, from and to files and streams."""
    one = _letters(1500, 1)
    (home / "a.fa").write_text(f">one\n{one}\n>two\n{_letters(90, 2)}\n>three\n{'N' * 500}\n")
    (home / "a.bed").write_text("one\t300\t700\tfirst\n")
    head = "##fileformat=VCFv4.2\n##contig=<ID=one>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
    (home / "a.vcf").write_text(f"{head}one\t701\tv\t{one[700]}\t{'ACGT'['CGTA'.index(one[700])]}\t.\t.\t.\n")

    def run(command: str, *words: object) -> str:
        return _run("bigbird-dna", command, "yeast-promoters", *words, "--device", "cpu", home=home)

    for ending in ("tsv", "bed", "bedgraph", "bw", "parquet", "tsv.gz"):
        run("score-promoters", "a.fa", "--stride", 50, "-o", f"scores.{ending}")
    for ending in ("vcf", "tsv"):
        run("score-variants", "a.vcf", "--reference", "a.fa", "-o", f"effects.{ending}")
    yield "stream", run("score-promoters", "a.fa", "--regions", "a.bed", "--calibrated", "--prior", 0.1)
    yield from _files(home, "files/")


def attention_values() -> Entries:
    """Hidden states and gradients of a small encoder with each pattern and mechanism."""
    import torch

    from bigbird_dna import Encoder, EncoderConfig

    torch.set_num_threads(1)
    patterns = ("bigbird", "bigbird_etc", "random", "window", "random_window", "full")
    sparse = ("axial", "logsparse", "logsparse_powers", "routing", "sparse_fixed")
    plans = ("fixed", "logsparse", "mixture", "routing", *(f"axial_{way}" for way in AXIAL_PLANS))
    combiner = (f"combiner_{plan}" for plan in plans)
    for name in sorted({*patterns, *sparse, *combiner, "longformer", "performer", "reformer"}):
        shape = {"layers": 2, "hidden": 32, "heads": 2, "max_length": 512, "block_size": 16, "dropout": 0.0}
        globals_ = 8 if name.endswith("etc") else 0
        config = EncoderConfig(vocabulary=64, attention=name, num_global_tokens=globals_, **shape)
        torch.manual_seed(0)
        network = Encoder(config)
        ids = torch.randint(0, 64, (2, 300))
        hidden = network(ids, torch.tensor([300, 211]))[:, :211]
        hidden.square().sum().backward()
        gradients = [one.grad for one in network.parameters() if one.grad is not None]
        parts = [hidden.detach(), *gradients]
        yield name, _digest(b"".join(part.contiguous().numpy().tobytes() for part in parts))


def dry_runs() -> Entries:
    """Every job of every shipped configuration: rule, inputs, outputs and shell command."""
    overlays = {
        "yeast_study": "yeast",
        "yeast_longer": "yeast",
        "yeast_tables": "yeast",
        "chr22_study": "chr22",
    }
    overlays |= dict.fromkeys(("long_range", "density_images", "density_text"), "demo")
    targets = {
        "demo": ("all", "table5", "table6", "table7", "ablation"),
        "yeast": ("all", "ablation"),
        "yeast_tables": ("table5", "table6", "table7"),
        "long_range": ("long_range_arena",),
        "density_images": ("byte_lm",),
        "density_text": ("byte_lm",),
        "nlp": ("nlp",),
    }
    for path in sorted((REPOSITORY / "workflow/config").glob("*.yaml")):
        below = [REPOSITORY / f"workflow/config/{overlays[path.stem]}.yaml"] if path.stem in overlays else []
        for target in targets.get(path.stem, ("all",)):
            with TemporaryDirectory() as name:
                files = ["--configfile", *below, path]
                words = ["--snakefile", REPOSITORY / "Snakefile", "--cores", 32, "--directory", name, *files]
                local = _stand_ins(Path(name), path.stem)
                text = _run(
                    "snakemake", "--dry-run", "--printshellcmds", *words, *local, "--", target, errors=True
                )
                if missing := re.search(r"^MissingInputException.*\n(?:.*\n)*?(?=\S)", text, re.MULTILINE):
                    yield f"{path.stem} {target}", _digest("\n".join(sorted(missing[0].split("\n")[1:])))
                for number, job in enumerate(sorted(set(_jobs(text.replace(name, "HOME"))))):
                    yield f"{path.stem} {target} {number}", job


def _stand_ins(home: Path, name: str) -> list[object]:
    """Empty files in place of those that a configuration asks for; the arguments that name them."""
    wanted = {"chr22": "chr22", "chr22_study": "chr22", "minimal": "minimal", "sequences": "sequences"}
    if name not in wanted:
        return ["--config", "data_dir=null"]
    local = home / "local"
    (local / "peaks").mkdir(parents=True)
    values = yaml.safe_load((REPOSITORY / f"workflow/config/{wanted[name]}.yaml").read_text())
    chromatin, promoters = values.get("chromatin", {}), values.get("promoters", {})
    sequences = promoters.get("sequences") or {}
    for file in (
        *(values.get("genome", {}).get("reference"), promoters.get("source"), chromatin.get("variants")),
        *(sequences.get("positives"), sequences.get("negatives")),
    ):
        if file:
            (local / file).write_bytes(b"")
    return ["--config", f"data_dir={local}"]


def _jobs(text: str) -> Entries:  # type: ignore[misc]
    """The jobs of a dry run's output, each as one text."""
    for block in re.split(r"\n(?=\[\w{3} \w{3} )", text):
        kept = [
            line.strip()
            for line in block.splitlines()
            if re.match(r"(local)?rule \w+:|\s+(input|output): |Shell command: ", line)
        ]
        if kept and "rule " in kept[0]:
            yield "\n".join([kept[0], *(_sorted(line) for line in kept[1:])])


def _sorted(line: str) -> str:
    """Inputs and outputs in an order of their own."""
    name, _, rest = line.partition(": ")
    return line if name.startswith("Shell") else f"{name}: {', '.join(sorted(rest.split(', ')))}"


def tiny_run() -> Entries:
    """Every file of the workflow's miniature run, two minutes of a core."""
    from tests.tiny_run import WHOLE

    with TemporaryDirectory() as name:
        path = Path(name, "tiny.yaml")
        path.write_text(yaml.safe_dump({"results": "results/tiny", **WHOLE}))
        _run("snakemake", "--snakefile", REPOSITORY / "Snakefile", "--cores", 2, "--directory", name,
             "--configfile", path)  # fmt: skip
        yield from _files(Path(name, "results/tiny"))


def size_of_code() -> Entries:
    """Lines and files of the package, of the workflow and of the tests."""
    for name, pattern in (("bigbird_dna", "*.py"), ("workflow", "*.smk"), ("tests", "*.py")):
        files = sorted((REPOSITORY / name).rglob(pattern))
        yield name, f"{sum(len(path.read_text().splitlines()) for path in files)} lines, {len(files)} files"


ITEMS: dict[str, Callable[[], Entries]] = {
    "help": help_texts,
    "names": public_names,
    "bundled": bundled_models,
    "attention": attention_values,
    "dry-runs": dry_runs,
    "tiny": tiny_run,
    "size": size_of_code,
}


def record(output: Path, only: list[str], demo: Path | None) -> None:
    """Write a record."""
    found: dict[str, dict[str, str]] = {}
    for name in only or ITEMS:
        found[name] = dict(ITEMS[name]())
        print(f"{name}: {len(found[name]):,} entries", file=sys.stderr)
    if demo is not None:
        found["demo"] = dict(_files(demo))
    output.write_text(json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def compare(one: Path, other: Path) -> int:
    """Print what differs between two records; 1 if anything does."""
    before, after = json.loads(one.read_text()), json.loads(other.read_text())
    differing = 0
    for item in sorted({*before} & {*after} - {"size"}):
        keys = sorted({*before[item]} | {*after[item]})
        changed = [key for key in keys if before[item].get(key) != after[item].get(key)]
        differing += len(changed)
        print(f"{item}: {len(changed):,} of {len(keys):,} differ")
        for key in changed[:40]:
            was, is_now = (values[item].get(key, "absent") for values in (before, after))
            print(f"  {key}: {was:.100} -> {is_now:.100}")
    return 1 if differing else 0


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("record")
    making.add_argument("output", type=Path)
    making.add_argument("--only", nargs="+", choices=ITEMS, default=[])
    making.add_argument("--demo", type=Path, help="the results of `make demo`, recorded as well")
    comparing = commands.add_parser("compare")
    comparing.add_argument("one", type=Path)
    comparing.add_argument("other", type=Path)
    options = parser.parse_args()
    if options.command == "compare":
        sys.exit(compare(options.one, options.other))
    record(options.output, options.only, options.demo)


if __name__ == "__main__":
    main()
