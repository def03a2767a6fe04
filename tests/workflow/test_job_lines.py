"""What a run shows in the terminal: a line per finished job, and the log of one that failed."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bigbird_dna.workflow import JobLines, duration, show_job_lines
from tests.conftest import REPOSITORY


def record(event: str | None, **values: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": "text", "event": event, **values})
    return made


def test_a_finished_job_is_one_line_and_what_else_is_said_of_it_is_not_shown() -> None:
    lines = JobLines()
    begun = record("job_info", jobid=3, rule_name="finetune_promoter", wildcards={"of": "genomic", "seed": 2})
    other = record("job_info", jobid=4, rule_name="simulate", wildcards={})
    assert not any(map(lines.filter, (begun, other, record("shellcmd"), record("job_started"))))
    assert not lines.filter(record("job_finished", job_id=3))
    assert not lines.filter(record("job_finished", job_id=4))
    shown = record("progress", done=5, total=52)
    assert lines.filter(shown) and shown.event is None
    assert shown.msg == "[5/52] finetune_promoter genomic 2  0:00\n[5/52] simulate  0:00"
    assert not lines.filter(record("progress", done=5, total=52))
    assert lines.filter(record("job_error", jobid=3)) and lines.filter(record("error"))
    assert lines.filter(record(None)) and not lines.filter(record(None, msg="Select jobs to execute..."))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3600, "1:00:00")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_files_keep_the_blocks(tmp_path: Path) -> None:
    logger = logging.Logger("one")
    for handler in (logging.StreamHandler(), logging.FileHandler(tmp_path / "log")):
        logger.addHandler(handler)
    show_job_lines(logger)
    assert [len(handler.filters) for handler in logger.handlers] == [1, 0]
    logger.handlers[1].close()


def test_the_log_of_a_failed_job_is_shown_and_the_configuration_is_not(tmp_path: Path) -> None:
    (tmp_path / "own.fa").write_text(">one\nACGTACGTAC\n>abrB\nACGT\n>abrB\nACGA\n")
    values = {
        "results": "results",
        "promoters": {"source": str(tmp_path / "tss.bed")},
        "genome": {
            **{"assembly": "custom", "name": "own", "reference": str(tmp_path / "own.fa")},
            **{"valid": ["two"], "test": ["one"]},
        },
    }
    (tmp_path / "tss.bed").write_text("one\t3\t4\tp\t0\t+\n")
    config = tmp_path / "own.yaml"
    config.write_text(yaml.safe_dump(values))
    words = ["--snakefile", REPOSITORY / "Snakefile", "--cores", 1, "--keep-going", "--directory", tmp_path]
    words += ["--configfile", config, "--", "results/config/tokens.yaml", "results/genome/reference.fa.gz"]
    command = [str(Path(sys.executable).parent / "snakemake"), *map(str, words)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 1
    assert "a second record named 'abrB'" in done.stderr
    assert "] stage_config tokens  0:0" in done.stderr
    assert "corpus_megabases" not in done.stderr
