"""The configuration of tasks on text: a YAML file of its own, `workflow/config/nlp.yaml`.

`tasks` maps names, such as `imdb`, to sections, each with its `kind` and that kind's keys. It is read by the
same rules as the configuration of a genome's run: data alone, unknown keys refused, one line about a fault.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from bigbird_dna.config import Section
from bigbird_dna.config.names import DirectoryName
from bigbird_dna.config.reading import apply_override, named, read_values
from bigbird_dna.config.safe_yaml import key_shown, plain, shortened, shown
from bigbird_dna.errors import ConfigError
from bigbird_dna.papers.nlp.loading import check_extra
from bigbird_dna.papers.nlp.sections import (
    AnswersTaskConfig,
    ClassificationTaskConfig,
    PretrainingTaskConfig,
    SummariesTaskConfig,
    TextPaths,
)

AnyTask = PretrainingTaskConfig | ClassificationTaskConfig | AnswersTaskConfig | SummariesTaskConfig


def _name(text: str) -> str:
    if not text.replace("-", "").replace("_", "").isalnum() or not text.isascii() or text[0] in "-_":
        raise ValueError("a task's name has letters, digits, '-' and '_', and begins with a letter or digit")
    return text


class NlpConfig(Section):
    """All tasks, by name."""

    results: DirectoryName = Field(default="results/nlp", description="directory of every output")
    tasks: dict[Annotated[str, AfterValidator(_name)], Annotated[AnyTask, Field(discriminator="kind")]] = (
        Field(default={}, description="sections by a name of one's own")
    )
    demo: tuple[str, ...] = Field(default=(), description="tasks that the target nlp_demo runs")

    def task(self, name: str) -> AnyTask:
        """A task's section; `ConfigError` with the names that there are."""
        if name not in self.tasks:
            raise ConfigError(f"task {shown(name)} is not one of {', '.join(self.tasks) or '(none)'}")
        return self.tasks[name]

    def task_text(self, name: str) -> str:
        """A task's section with every key, as the text of a configuration file (JSON, which is YAML)."""
        values = {"results": self.results, "tasks": {name: self.task(name).model_dump(mode="json")}}
        return json.dumps(values, indent=1, ensure_ascii=False)

    def paths(self, name: str) -> TextPaths:
        """The names of a task's files."""
        return TextPaths(Path(self.results), name)


def read_task(path: Path, overrides: Sequence[str], name: str) -> tuple[AnyTask, TextPaths]:
    """A task of a configuration, its files; `UsageError` without the extra `nlp`, or as `read_config`."""
    check_extra()
    config = read_config(path, overrides)
    return config.task(name), config.paths(name)


def read_config(path: Path, overrides: Sequence[str] = ()) -> NlpConfig:
    """Read a configuration of tasks on text, with `key=value` overrides as `tasks.imdb.training.steps=10`.

    `ConfigError` names the file, and the first key at fault with its value.
    """
    values = read_values(path)
    for one in overrides:
        apply_override(values, one)
    return parse_config(values, named(path))


def parse_config(values: Mapping[str, Any], source: str = "configuration") -> NlpConfig:
    """Check a mapping of keys; `ConfigError` as `read_config`, with `source` for the file."""
    try:
        config = NlpConfig.model_validate(plain(values, source))
    except ValidationError as error:
        first = error.errors()[0]
    else:
        for name in config.demo:
            config.task(name)
        return config
    # The discriminator's tag stands in the place, behind the task's name: no key of the file.
    place = [str(part) for part in first["loc"]]
    if place[:1] == ["tasks"] and len(place) > 3:
        del place[2]
    key = ".".join(place) or "(top level)"
    if first["type"] == "extra_forbidden":
        raise ConfigError(f"{source}: unknown key {shown(key)}")
    message = shortened(first["msg"].removeprefix("Value error, "), 300)
    value = "" if isinstance(first["input"], dict) else f" (got {shown(first['input'])})"
    raise ConfigError(f"{source}: {key_shown(key)}: {message}{value}")
