"""Without the extra nlp everything but its commands works, and those say what to install."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.golden.messages import message

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {libraries!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
sys.modules.update(dict.fromkeys({libraries!r}))
"""
ALL = ("transformers", "tokenizers", "datasets", "rouge_score")


def python(
    code: str, *libraries: str, words: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    source = BLOCKED.format(libraries=set(libraries)) + code
    return subprocess.run(
        [sys.executable, "-c", source, *words], capture_output=True, text=True
    )


def test_the_package_and_its_commands_need_no_extra_and_import_nothing_of_text(
    tmp_path: Path,
) -> None:
    outcome = python(
        "import bigbird_dna.scoring.models, bigbird_dna.model.directory\n"
        "from bigbird_dna.cli.main import app\n"
        "sys.argv = ['bigbird-dna', 'simulate', *sys.argv[1:], '--megabases', '0.1']\n"
        "app(standalone_mode=False)\n"
        "print([name for name in sys.modules if name.startswith('bigbird_dna.papers.nlp')])\n",
        *ALL,
        words=(str(tmp_path / "made"),),
    )
    assert (outcome.returncode, outcome.stdout) == (0, "[]\n"), outcome.stderr
    assert (tmp_path / "made/genome.fa.gz").is_file()


def test_commands_of_text_say_what_to_install() -> None:
    outcome = python(
        "from bigbird_dna.cli.main import main\n"
        "sys.argv = ['bigbird-dna', 'nlp', 'prepare', *sys.argv[1:]]\n"
        "main()\n",
        "rouge_score",
        words=(str(REPOSITORY / "workflow/config/nlp.yaml"), "--task", "far"),
    )
    assert outcome.returncode == 2 and outcome.stdout == ""
    message(outcome.stderr, "rouge_score", "'bigbird-dna[nlp]'")
