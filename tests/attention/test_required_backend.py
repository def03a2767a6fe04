"""A required backend: attention with another one fails before it computes."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from bigbird_dna.attention import (
    Pattern,
    Route,
    bigbird_attention,
    full_attention,
    native,
    required_backend,
    routes_logged,
)
from bigbird_dna.attention.backends import BACKENDS
from bigbird_dna.errors import UsageError
from tests.attention.reference_implementations import inputs
from tests.cli.command import Run
from tests.golden.messages import fails, message
from tests.toys import random_dna

SPARSE = Pattern(
    block_size=8, global_blocks=1, window_blocks=3, random_blocks=1, seed=1
)
LONG, SHORT, FULL = (
    600,
    60,
    24,
)  # tokens: sparse; few enough for a mask; every block attends to every block


def attend(route: Route, tokens: int = LONG) -> list[str]:
    """The routes that ran."""
    logged: list[str] = []
    with routes_logged(lambda choice: logged.append(choice.route)):
        bigbird_attention(
            *inputs(1, 2, tokens, 16, dtype=torch.float32)[:3], SPARSE, route=route
        )
    return logged


@pytest.mark.parametrize("wanted", BACKENDS)
@pytest.mark.parametrize("route", ["blocked", "dense", "native"])
def test_another_backend_fails_before_its_work(wanted: str, route: Route) -> None:
    runs = attend(route)
    assert len(runs) == 1
    with required_backend(wanted):
        with nullcontext() if runs == [wanted] else fails(UsageError, wanted, runs[0]):
            assert attend(route) == [wanted]
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(attend, route).exception()
        assert (found is None) == (runs == [wanted])
    assert attend(route) == runs, "outside nothing is required"


def test_a_backend_that_gives_way_states_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "unavailable", lambda *_: "no compiler")
    with required_backend("native"), fails(UsageError, "no compiler"):
        attend("auto")


@pytest.mark.parametrize(("tokens", "route"), [(SHORT, "masked"), (FULL, "full")])
@pytest.mark.parametrize("wanted", BACKENDS)
def test_where_no_backend_is_faster_every_requirement_is_met(
    wanted: str, tokens: int, route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIGBIRD_DNA_NATIVE", "0")  # it is faster than a mask
    with required_backend(wanted):
        assert attend("auto", tokens) == [route]


def test_what_has_no_backend_is_a_line_of_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with required_backend("flex"):
        full_attention(*inputs(1, 2, 50, 16)[:3])
    message(capsys.readouterr().err.partition("  ")[2], "flex")
    with required_backend("blocked"):
        attend("blocked")
    assert capsys.readouterr().err == ""


def test_unknown_backends_are_refused() -> None:
    with fails(UsageError, "quick"), required_backend("quick"):
        pass


def test_commands_fail_before_they_write(run: Run, tmp_path: Path) -> None:
    """Layers with packed weights have a backend as well."""
    (tmp_path / "a.fa").write_text(f">a\n{random_dna(400, 1)}\n")
    words = (
        "score-promoters",
        "yeast-promoters-window",
        tmp_path / "a.fa",
        "-o",
        tmp_path / "o.tsv",
    )
    result = run(*words, "--device", "cpu", "--require-backend", "flex")
    message(result.err.splitlines()[-1])
    assert result.code == 2 and not (tmp_path / "o.tsv").exists()
    expected = run(*words, "--device", "cpu") and (tmp_path / "o.tsv").read_bytes()
    ran = "native" if native.pointwise(torch.ones(1)) else "blocked"
    assert run(*words, "--device", "cpu", "--require-backend", ran).code == 0
    assert (tmp_path / "o.tsv").read_bytes() == expected
