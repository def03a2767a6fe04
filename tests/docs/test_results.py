"""Numbers of README and result pages are those of the stored results, which say how they were made."""

import json
import re
from pathlib import Path

import pytest
from Bio.Seq import Seq

from bigbird_dna.genome.annotation import read_transcripts
from bigbird_dna.genome.sequence import reverse_complement
from docs.generators import results
from docs.generators.collect import collect, dumped
from docs.generators.zero_shot import coding_variants
from tests.conftest import REPOSITORY
from tests.toys import random_dna

STRICT = results.pages(results.STRICT)


def test_rendering_again_changes_nothing() -> None:
    for path in results.pages():
        text = path.read_text(encoding="utf-8")
        assert results.rendered(text) == text, (
            f"{path}: run python -m docs.generators.results"
        )
        assert path not in STRICT or results.unbound(text) == [], path


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/results.md", "docs/results/demo.md", "docs/results/table6.md"],
)
def test_a_changed_digit_is_noticed(page: str) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    plain = re.sub(
        r"```.*?```", lambda found: " " * len(found[0]), text, flags=re.DOTALL
    )
    places = [
        found.end() - 1
        for found in re.finditer(r"(?<![\w.-])(?<!Python )\d+\.\d+|\b\d+:\d\d\b", plain)
    ]
    assert len(places) > 10
    for place in places[:: 1 + len(places) // 20]:
        planted = f"{text[:place]}{(int(text[place]) + 1) % 10}{text[place + 1 :]}"
        assert results.rendered(planted) == text or results.unbound(planted), text[
            place - 40 : place + 1
        ]


def test_numbers_that_no_result_gives_are_noticed() -> None:
    text = "The AUROC is 0.9 after 3:07, 5 minutes or 40 %, in `0.1` or Python 3.11, with 95 % intervals."
    assert results.unbound(text) == ["0.9", "3:07", "5 minutes", "40 %"]
    with pytest.raises(ValueError):
        results.rendered("**best**<!-- = longer-demo-avx512 minutes -->")


def test_stored_results_say_how_they_were_made() -> None:
    files = sorted(results.DATA.glob("*.json"))
    assert len(files) > 20
    for path in files:
        document = json.loads(path.read_text(encoding="utf-8"))
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", document["date"]), path
        made = (
            document["machine"]
            and document["machine"].keys() >= {"cpu", "cores"}
            and document["command"]
        )
        assert made or document["source"], path
        assert dumped(document) == path.read_text(encoding="utf-8"), path


def test_a_run_is_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "run/report/chromatin"
    report.mkdir(parents=True)
    (report.parent / "promoters.tsv").write_text(
        "negative_set\tmodel\tauroc\tn\tnote\ngenomic\tmodel\t0.875\t8\t\n"
    )
    (report.parent / "summary.tsv").write_text("section\tvalue\n")
    (report / "groups.tsv").write_text("group\tmedian_auroc\nall\t0.5\n")
    document = collect(tmp_path / "run", "make demo", 3.5)
    assert document["tables"] == {
        "groups": [{"group": "all", "median_auroc": 0.5}],
        "promoters": [
            {"negative_set": "genomic", "model": "model", "auroc": 0.875, "n": 8}
        ],
    }
    assert document["machine"]["cores"] >= 1 and document["command"] == "$ make demo"
    assert json.loads(dumped(document)) == document


def test_several_runs_are_shown_as_mean_and_range() -> None:
    rows = [
        {"run": run, "auroc": auroc, "auroc_low": 0.1, "auroc_high": 0.9}
        for run, auroc in (("a", 0.5), ("b", 0.7))
    ]
    assert results.filled("{auroc:.2~}", rows[:1], {}) == "0.50 [0.10, 0.90]"
    assert results.filled("{auroc:.2~}", rows, {}) == "0.60 (0.50 to 0.70)"
    with pytest.raises(ValueError):
        results.filled("{auroc:.2}", [rows[0], rows[0]], {})


@pytest.mark.parametrize("strand", "+-")
def test_coding_variants_are_of_their_kind(tmp_path: Path, strand: str) -> None:
    """Each, put into the contig, changes what Biopython translates as its kind says."""
    turn = str if strand == "+" else reverse_complement
    parts = ("ATGGCTTGG", f"GT{random_dna(31, 1)}AG", "TACCGAGCA")
    contig = turn(random_dna(20, 2) + "".join(parts) + "TAA" + random_dna(20, 3))
    ends = [(21, 29), (65, 73)] if strand == "+" else [(24, 32), (68, 76)]
    path = tmp_path / "x.gtf"
    path.write_text(
        "".join(
            f'c\tx\tCDS\t{first}\t{last}\t.\t{strand}\t0\ttranscript_id "t";\n'
            for first, last in ends
        )
    )
    (transcript,) = read_transcripts(path)
    kinds = dict[str, set[tuple[int, str]]]()
    for one in coding_variants(transcript, contig):
        assert contig[one.position] == one.ref != one.alt
        edited = turn(contig[: one.position] + one.alt + contig[one.position + 1 :])
        protein = str(Seq(edited[20:29] + edited[64:73]).translate())
        intron = edited[29:64]
        is_split = not (intron.startswith("GT") and intron.endswith("AG"))
        found = {
            "start": not protein.startswith("M"),
            "stop": "*" in protein,
            "synonymous": protein == "MAWYRA" and not is_split,
            "splice": is_split,
        }
        assert [name for name, is_it in found.items() if is_it] == [one.kind]
        kinds.setdefault(one.kind, set()).add((one.position, one.alt))
    # TGG and TAC can become stops by two changes each, CGA by one; four bases of the intron by three.
    assert {kind: len(changes) for kind, changes in kinds.items()} == {
        "start": 9,
        "stop": 5,
        "synonymous": 3 + 1 + 4 + 3,
        "splice": 12,
    }
