"""A sequence in another order that has the same dinucleotides, each exactly as often.

A sequence is a walk along edges from letter to letter, and any walk that uses the same edges has the same
dinucleotides, first and last letter. Altschul & Erickson (Molecular Biology and Evolution 2:526, 1985): draw
for each letter the edge that leaves it last, until these edges lead from every letter to the last one; put
the other edges of each letter into random order; walk. All such sequences are equally likely.
"""

import numpy as np
import numpy.typing as npt


def shuffle_dinucleotides(sequence: str, rng: np.random.Generator) -> str:
    """Another sequence with the same dinucleotides, first and last letter; N is a letter like the others.

    It may be the same one: where its dinucleotides leave no other, always.
    """
    if len(sequence) < 3:
        return sequence
    letters, codes = np.unique(np.frombuffer(sequence.encode("ascii"), np.uint8), return_inverse=True)
    following = [codes[1:][codes[:-1] == letter] for letter in range(len(letters))]
    last = _last_edges(following, int(codes[-1]), rng)
    edges = []
    for letter, targets in enumerate(following):
        if letter in last:
            place = last[letter]
            others = rng.permutation(np.delete(targets, place))
            targets = np.append(others, targets[place])
        else:
            targets = rng.permutation(targets)
        edges.append(iter(targets.tolist()))
    here = int(codes[0])
    walk = [here]
    for _ in range(len(sequence) - 1):
        here = next(edges[here])
        walk.append(here)
    return letters[walk].tobytes().decode("ascii")


def _last_edges(
    following: list[npt.NDArray[np.integer]], end: int, rng: np.random.Generator
) -> dict[int, int]:
    """For each letter that is left, but `end`, the number of its last edge; all of them lead to `end`."""
    while True:
        last = {
            letter: int(rng.integers(len(targets)))
            for letter, targets in enumerate(following)
            if letter != end and len(targets)
        }
        if all(_leads(letter, last, following, end) for letter in last):
            return last


def _leads(start: int, last: dict[int, int], following: list[npt.NDArray[np.integer]], end: int) -> bool:
    here = start
    for _ in range(len(following)):
        if here == end:
            return True
        here = int(following[here][last[here]])
    return here == end
