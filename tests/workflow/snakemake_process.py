"""A process that runs Snakemake, forked from one that has imported all that Snakefiles need."""

import os
import sys
import tempfile
import traceback
from pathlib import Path

import snakemake.executors.local  # noqa: F401
from snakemake.cli import main

import bigbird_dna.papers.nlp.config  # noqa: F401
import bigbird_dna.reporting.run_page  # noqa: F401
import bigbird_dna.workflow  # noqa: F401


def run_snakemake(argv: list[str], environment: dict[str, str], home: str) -> None:
    """Run Snakemake in this process, with its output in `home`, and exit with its code."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        handle = os.open(Path(home, name), os.O_WRONLY | os.O_CREAT)
        os.dup2(handle, number)
        os.close(handle)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = home
    sys.argv = argv
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code or 0))
