"""What users and developers read is plain English: banned words do not occur, and sentences are short.

Checked are docstrings, comments and strings of the package, and the documentation, configurations, captions
and workflow. Spelling is checked by codespell (`make lint`).
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

_COUNTED = "row|line|file|point|panel|job|model|column|value|vector|bar|bin|token|window|second|step|sequence"
_UNIT = (
    "row|line|file|seed|model|window|track|step|token|task|mechanism|base|contig|sequence|variant|bin|second"
)
BANNED = {
    r"judg\w+": "evaluate, assess",
    r"tell|tells|told|telling": "distinguish, predict, specify",
    r"says?|said|saying|unsaid": "contains, specifies, states",
    r"hears?|heard": "receives",
    r"pieces?": "token, shard, part",
    r"learnt": "learned",
    r"anew|afresh": "again, from scratch",
    r"formerly": "in earlier versions",
    r"afar|far away": "long-range, distal",
    r"oracles?": "reference implementation",
    r"rulers?": "reference",
    r"besides?": "next to, in addition to, compared with",
    r"side by side": "compared",
    r"rivals?|contenders?": "baselines, implementations",
    r"stretch(?:es)?": "segment",
    r"stand|stands|stood|standing": "is listed, appears",
    r"lies?|lay|lying": "is located, is in",
    r"shares? of|a share|the share|shares": "fraction, proportion",
    r"figures?(?! \d)": "plot; or metric, result, value, number",
    r"middle": "center",
    r"refus\w+": "is rejected, raises, is not supported",
    r"mend(?:s|ed)?": "fix",
    r"by heart": "memorizes",
    r"whole or not at all": "atomically",
    r"goes on|go on|going on": "resumes, continues",
    r"read out": "text summary",
    r"buys": "effect of",
    r"alike": "the same, similar",
    r"so many": "the number",
    r"whatever": "(state the reason)",
    r"nobody\w*|ours|theirs": "(name the thing)",
    r"knows": "contains, recognizes",
    r"\w+n't|it's|that's|there's": "(no contractions)",
    rf"(?:{_COUNTED})s? an? (?:{_UNIT})|(?:bases|bp) a (?:token|window)": "per",
}
WORDS = re.compile(rf"\b(?:{'|'.join(f'(?:{one})' for one in BANNED)})(?!\w)", re.IGNORECASE)
# Names and code are no prose.
_CODE = re.compile(
    r"```.*?```|~~~.*?~~~|`[^`\n]*`|\]\([^)]*\)|https?://\S+|<[^>\n]*>|\{[^{}\n]*\}|\w*_\w+|\w+\.\w[\w.]*|--[\w-]+",
    re.DOTALL,
)


CHECKED = [
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "config/README.md", "Snakefile", "workflow/Snakefile"),
    *("bigbird_dna/**/*.py", "bigbird_dna/**/*.rst", "bigbird_dna/**/*.html", "docs/**/*.md"),
    *("workflow/**/*.smk", "workflow/config/*.yaml"),
]
SPEAKING = {"log", "argument", "option", "output", "field", "Field"}
LONGEST = 30  # words of a sentence in a message or help text


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file with the number of their first line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".yaml", ".smk", ""):
        yield from ((line, row.partition("#")[2]) for line, row in enumerate(text.splitlines(), start=1))
        return
    if path.suffix != ".py":
        yield 1, text
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def faults(path: Path) -> Iterator[str]:
    """Yield the banned words of a file with their lines."""
    for line, text in prose(path):
        plain = _CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
        for found in WORDS.finditer(plain):
            yield f"{path}:{line + plain.count(chr(10), 0, found.start())}: {found[0]!r}"


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the sentences of help texts, key descriptions, log lines and messages of exceptions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        texts: list[ast.expr] = []
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            texts = node.exc.args
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SPEAKING:
            texts = [*node.args, *(word.value for word in node.keywords if word.arg == "description")]
        for text in texts:
            parts = [
                one.value
                for one in ast.walk(text)
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
            for sentence in re.split(r"(?<=[.;:!?])\s+", " ".join(parts)):
                yield text.lineno, sentence


@pytest.mark.parametrize("pattern", CHECKED)
def test_no_banned_word_occurs(pattern: str) -> None:
    paths = [path for path in REPOSITORY.glob(pattern) if not path.match("*/site/*")]
    assert paths
    assert [fault for path in paths for fault in faults(path)] == []


def test_sentences_of_messages_and_help_texts_are_short() -> None:
    long = [
        f"{path}:{line}: {sentence}"
        for path in (REPOSITORY / "bigbird_dna").rglob("*.py")
        for line, sentence in sentences(path)
        if len(sentence.split()) > LONGEST
    ]
    assert long == []


def test_a_planted_word_would_be_noticed(tmp_path: Path) -> None:
    path = tmp_path / "planted.py"
    path.write_text(
        '"""Judge models.\n\nOne value a track is told.\n"""\nfigures = "`judge` of judge_models" # anew\n'
    )
    found = [fault.rpartition(": ")[2] for fault in faults(path)]
    assert found == ["'anew'", "'Judge'", "'value a track'", "'told'"]
    path.write_text(f"raise ValueError(f'{{x}} is {'very ' * LONGEST}long')")
    assert [line for line, sentence in sentences(path) if len(sentence.split()) > LONGEST] == [1]
