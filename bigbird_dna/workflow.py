"""What a run of the workflow shows in the terminal; used by the Snakefile alone."""

import logging
from time import monotonic

_HIDDEN = {"job_info", "group_info", "job_started", "shellcmd", "resources_info"}
_CHATTER = ("Select jobs to execute...", "Removing temporary output")


class JobLines(logging.Filter):
    """One line per finished job in place of Snakemake's blocks: its rule, wildcards and duration.

    Errors pass, and so does the log of a failed job (`--show-failed-logs`). A dry run never gets here, and
    Snakemake's own log file of the run has everything.
    """

    def __init__(self) -> None:
        super().__init__()
        self._running: dict[int, tuple[str, float]] = {}
        self._finished: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is shown as it is; lines of jobs take the place of some that aren't."""
        event = str(getattr(record, "event", None) or "")
        if event == "job_info":
            self._running[record.jobid] = (self._label(record), monotonic())  # type: ignore[attr-defined]
        elif event == "job_finished":
            label, begun = self._running.pop(record.job_id, ("", 0.0))  # type: ignore[attr-defined]
            if label:
                self._finished.append(f"{label}  {duration(monotonic() - begun)}")
            return False
        elif event == "progress":
            lines, self._finished = self._finished, []
            if not lines:
                return False
            # The record is shown as a plain message: the formatter knows events by this attribute.
            record.event = None
            count = f"{record.done}/{record.total}"  # type: ignore[attr-defined]
            record.msg, record.args = "\n".join(f"[{count}] {line}" for line in lines), ()
            return True
        return event not in _HIDDEN and not str(record.msg).startswith(_CHATTER)

    @staticmethod
    def _label(record: logging.LogRecord) -> str:
        wildcards = getattr(record, "wildcards", None) or {}
        return " ".join([record.rule_name, *map(str, wildcards.values())])  # type: ignore[attr-defined]


def duration(seconds: float) -> str:
    """Hours, minutes and seconds as `1:02:03`, or minutes and seconds as `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def show_job_lines(logger: logging.Logger) -> None:
    """Let the terminal have lines of jobs; files keep Snakemake's own blocks."""
    for handler in logger.handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
            handler.addFilter(JobLines())
