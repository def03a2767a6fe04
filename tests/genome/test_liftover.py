"""liftOver against a base-by-base reading of small chains."""

import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome.promoters import lift
from bigbird_dna.genome.sequence import Locus
from tests.golden.messages import fails

# Blocks of (size, gap in the source, gap in the target); the last has no gaps.
blocks = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4)


def chain_text(blocks, source_start, target_start, direction, number=1):
    """A chain of contig s (200 bp) onto contig t (300 bp)."""
    source = sum(size + gap for size, gap, _ in blocks) - blocks[-1][1]
    target = sum(size + gap for size, _, gap in blocks) - blocks[-1][2]
    header = (
        f"chain 1000 s 200 + {source_start} {source_start + source} "
        f"t 300 {direction} {target_start} {target_start + target} {number}\n"
    )
    lines = [f"{size}\t{gap}\t{other}\n" for size, gap, other in blocks[:-1]]
    return header + "".join(lines) + f"{blocks[-1][0]}\n\n"


def base_by_base(blocks, source_start, target_start, direction):
    """Source position → (target position, direction), as the format's description has it."""
    mapping = {}
    for size, gap, other in blocks:
        for offset in range(size):
            target = target_start + offset
            mapping[source_start + offset] = target if direction == "+" else 300 - 1 - target
        source_start += size + gap
        target_start += size + other
    return mapping


def same(contig, contigs):
    return contig if contig in contigs else None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(blocks, st.integers(0, 100), st.integers(0, 100), st.sampled_from("+-"), st.booleans())
def test_every_base_goes_where_the_chain_says(
    tmp_path, blocks, source_start, target_start, direction, packed
):
    text = chain_text(blocks, source_start, target_start, direction).encode()
    path = tmp_path / ("x.chain.gz" if packed else "x.chain")
    path.write_bytes(gzip.compress(text) if packed else text)
    expected = base_by_base(blocks, source_start, target_start, direction)
    loci = [Locus("s", position, "+-"[position % 2], f"n{position}") for position in range(200)]
    lifted = lift(loci, path, same)
    flipped = {"+": "-", "-": "+"}
    assert lifted.loci == [
        Locus("t", expected[x.position], x.strand if direction == "+" else flipped[x.strand], x.name)
        for x in loci
        if x.position in expected
    ]
    assert lifted.unmapped == [x for x in loci if x.position not in expected]


def test_a_locus_with_two_counterparts_is_unmapped(tmp_path):
    path = tmp_path / "x.chain"
    first = chain_text([(10, 0, 0)], 0, 0, "+")
    path.write_text(first + chain_text([(5, 0, 0)], 5, 50, "+", number=2))
    lifted = lift([Locus("s", 4, "+", "a"), Locus("s", 5, "+", "b")], path, same)
    assert lifted.loci == [Locus("t", 4, "+", "a")]
    assert lifted.unmapped == [Locus("s", 5, "+", "b")]


def test_contigs_are_renamed_to_the_chains(tmp_path):
    path = tmp_path / "x.chain"
    path.write_text(chain_text([(10, 0, 0)], 0, 0, "+"))
    loci = [Locus("alias", 1, "+", "a"), Locus("other", 1, "+", "b")]
    lifted = lift(loci, path, lambda name, names: names[0] if name == "alias" else None)
    assert lifted.loci == [Locus("t", 1, "+", "a")]
    assert lifted.unmapped == [loci[1]]
    with fails(DataError):
        lift([loci[1]], path, same)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"root:x:0:0\n", "not a usable chain file"),
        (b"\n", "no chain in the file"),
        (gzip.compress(chain_text([(10, 0, 0)], 0, 0, "+").encode(), mtime=0)[:-12], "truncated"),
        (b"\x00\x01\x02\x03", "not a text file"),
    ],
)
def test_a_broken_chain_gives_one_clear_line(tmp_path, content, message):
    path = tmp_path / "x.chain.gz"
    path.write_bytes(content)
    with fails(DataError) as caught:
        lift([Locus("s", 1, "+", "a")], path, same)
    assert str(caught.value).startswith(str(path))


def test_a_missing_chain(tmp_path):
    with fails(DataError):
        lift([], tmp_path / "absent.chain", same)


GOOD = "chain 1000 s 200 + 10 40 t 300 - 5 37 1\n10\t5\t7\n15\n\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("s 200", "s -200"), "not a stretch of a contig"),
        (("t 300", "t 30"), "from '5' to '37' is not a stretch of a contig of '30' bp"),
        (("5 37", "-5 37"), "from '-5' to '37' is not a stretch"),
        (("5 37", "37 5"), "not a stretch"),
        (("5 37", "5 99999999999999999999"), "not a stretch"),
        (("5 37", f"5 {'9' * 5000}"), "not a stretch"),
        (("5 37", "5 3_7"), "not a stretch"),
        (("5 37", "+5 37"), "not a stretch"),
        (("5 37", "5 ٣٧"), "not a stretch"),
        (("5 37", "5 38"), "line 3: .* blocks reach 37 of 't', the chain's header says 38"),
        (("10 40", "9 40"), "blocks reach 39 of 's'"),
        (("\n15\n", "\n16\n"), "blocks reach 41 of 's'"),
        (("10\t5\t7", "10\t-5\t7"), "line 2: .* is not a block"),
        (("10\t5\t7", "10\t5"), "is not a block"),
        (("10\t5\t7", "4294967306\t5\t7"), "is not a block"),
        (("10\t5\t7", "1" * 5000), "is not a block"),
        (("10\t5\t7\n", "10\t5\t7\n\n"), "line 3: .* ends before its last block"),
        (("15\n\n", ""), "the last chain has no last block"),
        (("s 200 +", "s 200 -"), "strands '-' and '-'"),
        (("300 -", "300 *"), r"strands '\+' and '\*'"),
        (("chain 1000", "chain x"), "not the header"),
        (("chain 1000 s", "chain 1000"), "not a stretch"),
        (("t 300", "#t 300"), "begins with '#'"),
        (("\n10", "\r10"), "control character"),
    ],
)
def test_a_malformed_chain_is_an_error_and_no_place(tmp_path, change, message):
    path = tmp_path / "x.chain"
    assert GOOD.count(change[0]) == 1
    path.write_text(GOOD)
    assert lift([Locus("s", 12, "+", "a")], path, same).loci == [Locus("t", 292, "-", "a")]
    path.write_text(GOOD.replace(*change))
    with fails(DataError) as caught:
        lift([Locus("s", position, "+", "a") for position in range(200)], path, same)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value)) < 500


def test_a_contig_of_two_lengths_is_an_error(tmp_path):
    path = tmp_path / "x.chain"
    path.write_text(GOOD + GOOD.replace("t 300", "t 301"))
    with fails(DataError):
        lift([Locus("s", 12, "+", "a")], path, same)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(st.data())
def test_no_place_outside_its_contig_comes_out(tmp_path, data):
    text = GOOD + GOOD.replace(" 1\n", " 2\n").replace("10 40", "100 130")
    words = text.replace("\n", " \n ").replace("\t", " ").split(" ")
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(words) - 1))
        numbers = st.integers(-5, 400) | st.sampled_from([2**31, 2**32, 2**63, 2**64, 10**30])
        words[place] = data.draw(numbers.map(str) | st.sampled_from(["", "+", "-", "\n", "1_0", "s", "t"]))
    path = tmp_path / "x.chain"
    path.write_text(" ".join(words))
    try:
        lifted = lift([Locus("s", position, "+", "a") for position in range(200)], path, same)
    except DataError:
        return
    lengths = {
        line.split()[7]: int(line.split()[8]) for line in path.read_text().split("\n") if "chain" in line
    }
    assert all(0 <= locus.position < lengths[locus.contig] for locus in lifted.loci)
