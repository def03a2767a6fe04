"""The configuration of tasks on text: a YAML file of its own, `workflow/config/nlp.yaml`.

`tasks` maps names, such as `imdb`, to sections, each with its `kind` and that kind's keys. It is read by the
same rules as the configuration of a genome's run: data alone, unknown keys refused, one line about a fault.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from bigbird_dna.config import Section
from bigbird_dna.config.names import DirectoryName
from bigbird_dna.config.reading import apply_override, checked, named, values_and_text
from bigbird_dna.config.safe_yaml import shown
from bigbird_dna.errors import ConfigError
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

    KINDS: ClassVar = {get_args(one.model_fields["kind"].annotation)[0]: one for one in get_args(AnyTask)}
    """Kind of a task → its section."""

    results: DirectoryName = Field(default="results/nlp", description="directory of every output")
    tasks: dict[Annotated[str, AfterValidator(_name)], Annotated[AnyTask, Field(discriminator="kind")]] = (
        Field(default={}, description="sections by a name of one's own")
    )
    demo: tuple[str, ...] = Field(default=(), description="tasks that the target nlp_demo runs")

    @model_validator(mode="after")
    def _demo_is_of_tasks(self) -> Self:
        for name in self.demo:
            self.task(name)
        return self

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


def read_config(path: Path, overrides: Sequence[str] = ()) -> NlpConfig:
    """Read a file, with overrides as `tasks.imdb.training.steps=10`; `ConfigError` as of `checked`."""
    values, text = values_and_text(path)
    for one in overrides:
        apply_override(values, one)
    return parse_config(values, named(path), text)


def parse_config(values: Mapping[str, Any], source: str = "configuration", text: str = "") -> NlpConfig:
    """Check a mapping of keys; `ConfigError` as of `checked`."""
    return checked(NlpConfig, values, source, text)
