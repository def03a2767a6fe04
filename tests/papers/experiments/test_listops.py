"""ListOps: values, sizes, no expression twice, and tables of others."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigbird_dna.config import LongRangeConfig
from bigbird_dna.config.long_range import ExamplesConfig, ListOpsConfig
from bigbird_dna.errors import DataError
from bigbird_dna.papers.experiments.listops import (
    OPERATORS,
    TOKENS,
    evaluate,
    generate,
    read_listops,
    root_baseline,
    write_listops,
)
from tests.golden.messages import fails

SMALL = ListOpsConfig(
    examples=ExamplesConfig(train=300, valid=40, test=60), shortest=8, longest=40, depth=4, arguments=5
)
digits = st.integers(0, 9).map(str)


def value(tree: object) -> int:
    """By Python's own words."""
    if isinstance(tree, str):
        return int(tree)
    name, arguments = tree
    values = sorted(map(value, arguments))
    if name == "[MED":
        half = len(values) // 2
        return values[half] if len(values) % 2 else (values[half - 1] + values[half]) // 2
    return {"[MAX": values[-1], "[MIN": values[0], "[SM": int(str(sum(values))[-1])}[name]


def words(tree: object) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    return [tree[0], *(word for one in tree[1] for word in words(one)), "]"]


trees = st.recursive(
    digits,
    lambda inner: st.tuples(st.sampled_from([*OPERATORS]), st.lists(inner, min_size=1, max_size=5)),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None)
@given(trees)
def test_values(tree: object) -> None:
    assert evaluate(words(tree)) == value(tree)


@pytest.mark.parametrize(
    "text", ["", "[MAX", "]", "[MAX ]", "1 2", "[MAX 1 ] ]", "[MAX 1 [MIN 2 ]", "[ADD 1 ]"]
)
def test_what_is_not_an_expression(text: str) -> None:
    with pytest.raises(ValueError):
        evaluate(text.split())


def test_what_is_generated() -> None:
    found = [*generate(SMALL, seed=1)]
    assert found == [*generate(SMALL, seed=1)] != [*generate(SMALL, seed=2)]
    splits = [split for split, _, _ in found]
    assert {split: splits.count(split) for split in splits} == {"test": 60, "valid": 40, "train": 300}
    texts = [text for _, text, _ in found]
    assert len({*texts}) == len(texts)
    depths, arguments = set(), set()
    for text, told in ((text, told) for _, text, told in found):
        tokens = text.split(" ")
        assert 8 <= len(tokens) <= 40 and {*tokens} <= {*TOKENS} and evaluate(tokens) == told
        assert tokens.count("]") == sum(token in OPERATORS for token in tokens) > 0
        depths.add(int(np.cumsum([(one in OPERATORS) - (one == "]") for one in tokens]).max()))
        counts: list[int] = []
        for token in tokens:
            if token in OPERATORS:
                counts.append(0)
                continue
            if token == "]":
                arguments.add(counts.pop())
            if counts:
                counts[-1] += 1
    assert max(depths) == 3  # digits are the fourth
    assert arguments == {2, 3, 4, 5}


def test_more_to_learn_from_leaves_what_is_judged_on() -> None:
    more = SMALL.model_copy(update={"examples": ExamplesConfig(train=400, valid=40, test=60)})
    one, other = ([*generate(config, seed=1)] for config in (SMALL, more))
    assert other[: len(one)] == one and len(other) == len(one) + 100


def test_duplicates_are_left_out_where_there_are_many() -> None:
    """Of one operator and two digits there are 400 expressions."""
    config = ListOpsConfig(
        examples=ExamplesConfig(train=300, valid=20, test=20), shortest=4, longest=4, depth=2, arguments=2
    )
    texts = [text for _, text, _ in generate(config, seed=1)]
    assert len({*texts}) == 340
    too_many = config.model_copy(update={"examples": ExamplesConfig(train=400, valid=20, test=20)})
    with fails(DataError):
        list(generate(too_many, seed=1))


def test_published_sizes_are_the_defaults() -> None:
    config = LongRangeConfig().listops
    assert (config.shortest, config.longest, config.depth, config.arguments) == (500, 2000, 10, 10)
    few = config.model_copy(update={"examples": ExamplesConfig(train=6, valid=1, test=1)})
    lengths = [len(text.split(" ")) for _, text, _ in generate(few, seed=1)]
    assert min(lengths) >= 500 and max(lengths) <= 2000


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_listops(tmp_path, SMALL, seed=1)
    for split in ("train", "valid", "test"):
        found = read_listops(tmp_path / f"{split}.tsv.gz")
        expected = [(text, told) for one, text, told in generate(SMALL, seed=1) if one == split]
        texts = [" ".join(TOKENS[token] for token in found.row(number)) for number in range(len(found))]
        assert texts == [text for text, _ in expected]
        assert found.targets.tolist() == [told for _, told in expected]


def test_a_published_file_is_read_without_its_parentheses(tmp_path: Path) -> None:
    path = tmp_path / "basic_train.tsv"
    path.write_text("Source\tTarget\n( ( ( [MAX 1 ) ( ( ( [SM 9 ) 2 ) ] ) ) ] )\t1\n")
    found = read_listops(path)
    assert [TOKENS[token] for token in found.row(0)] == ["[MAX", "1", "[SM", "9", "2", "]", "]"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Source\tTarget\n[MAX 1 2 ]\t3\n", ["line 2", "2", "3"]),
        ("Source\tTarget\n[MAX 1 2\t2\n", ["line 2"]),
        ("Source\tTarget\n[MAX 1 2 ] 2\n", ["line 2"]),
        ("a\tb\n", ["line 1"]),
        ("Source\tTarget\n", []),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, named: list[str]) -> None:
    path = tmp_path / "train.tsv"
    path.write_text(text)
    with fails(DataError, path, *named):
        read_listops(path)


def test_what_the_first_operator_tells(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("Source\tTarget\n[MAX 9 2 ]\t9\n[MAX 9 3 ]\t9\n[MIN 0 2 ]\t0\n[MAX 1 2 ]\t2\n")
    found = read_listops(path)
    assert root_baseline(found, found) == 0.75
