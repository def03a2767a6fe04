"""liftOver against a base-by-base reading of small chains."""

import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigbird_dna.errors import DataError
from bigbird_dna.genome.intervals import Locus
from bigbird_dna.genome.liftover import lift

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
    with pytest.raises(DataError, match="the contigs are other, the chain's s"):
        lift([loci[1]], path, same)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"root:x:0:0\n", "not a usable chain file"),
        (b"\n", "no chain in the file"),
        (gzip.compress(chain_text([(10, 0, 0)], 0, 0, "+").encode())[:-12], "truncated"),
        (b"\x00\x01\x02\x03", "not a usable chain file"),
    ],
)
def test_a_broken_chain_gives_one_clear_line(tmp_path, content, message):
    path = tmp_path / "x.chain.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        lift([Locus("s", 1, "+", "a")], path, same)
    assert str(caught.value).startswith(str(path))


def test_a_missing_chain(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        lift([], tmp_path / "absent.chain", same)
