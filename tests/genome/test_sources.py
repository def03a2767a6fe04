"""Public files: their list, which of them a configuration names, and what is wrong with a copy."""

import hashlib
from pathlib import Path

import pytest

from bigbird_dna.config.chromatin import ChromatinConfig, ChromatinDataConfig
from bigbird_dna.config.reading import parse_config
from bigbird_dna.config.run import Config
from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.sources import (
    Source,
    find_assembly,
    find_inputs,
    load_sources,
    locate,
)
from tests.golden.messages import fails


def test_every_entry_is_complete() -> None:
    entries = load_sources()
    assert len({entry.file for entry in entries.values()}) == len(entries)
    assert {
        "GRCh37.reference",
        "GRCh37.chain",
        "sacCer3.reference",
        "sacCer3.promoters",
    } <= set(entries)
    for entry in entries.values():
        assert entry.urls and entry.license and entry.citation and entry.megabytes > 0
        assert all(entry.file.endswith(url.rsplit("/", 1)[1]) for url in entry.urls)
        # In clear only what was asked for over TLS before.
        for number, url in enumerate(entry.urls):
            secure = url.startswith("https://")
            assert secure or url.replace("http://", "https://") in entry.urls[:number]
        assert len(set(entry.urls)) == len(entry.urls) > 1
        if entry.checksum is not None:
            algorithm, digest = entry.checksum.split(":")
            assert len(digest) == hashlib.new(algorithm).digest_size * 2


HUMAN: dict[str, str | None] = {
    **{"assembly": "GRCh37", "reference": "GRCh37.reference"},
    **{"promoters": "GRCh38.promoters", "chain": "GRCh37.chain"},
}


def _genome(**keys: str | None) -> Config:
    """Yeast with its sources, and other names for some roles."""
    genome = {"assembly": "sacCer3", "reference": "sacCer3.reference"}
    promoters: dict[str, str | None] = {"source": "sacCer3.promoters"}
    for role, name in keys.items():
        if role in ("promoters", "chain", "annotation"):
            promoters["source" if role == "promoters" else role] = name
        else:
            genome |= {role: name}
    return parse_config({"genome": genome, "promoters": promoters})


def check_sources(config: Config) -> dict[str, Source]:
    """The public files of a configuration."""
    return find_inputs(config, data_sets=False).sources


def own_files(config: Config) -> dict[str, Path]:
    """The user's files of a configuration."""
    found = find_inputs(config, data_sets=False)
    return {
        role: path for role, path in found.files.items() if role not in found.sources
    }


def test_sources_of_a_configuration() -> None:
    assert check_sources(Config()) == {}
    assert set(check_sources(_genome())) == {"reference", "promoters"}
    annotated = _genome(annotation="sacCer3.annotation")
    assert set(check_sources(annotated)) == {"reference", "promoters", "annotation"}
    assert check_sources(_genome(**HUMAN))["chain"].from_assembly == "GRCh38"
    assert set(check_sources(_genome(promoters=None))) == {"reference"}
    assert own_files(_genome(promoters=None)) == {}


def test_sources_of_deepseas_data() -> None:
    published = ChromatinConfig(data=ChromatinDataConfig(tracks="deepsea"))
    found = check_sources(_genome(**HUMAN).model_copy(update={"chromatin": published}))
    assert [source.key.partition(".")[::2] for source in found.values()][-3:] == [
        ("DeepSEA", role) for role in ("bundle", "bins", "tracks")
    ]
    assert len({source.file for source in found.values()}) == len(found) == 6
    for other in (Config(), _genome()):
        with fails(ConfigError):
            check_sources(other.model_copy(update={"chromatin": published}))


@pytest.mark.parametrize(
    "keys",
    [
        *({"reference": name} for name in ("hg99", None, "GRCh37.reference")),
        *({"promoters": name} for name in ("x.sga", "GRCh38.promoters")),
        *(
            {"chain": "x.chain"},
            {"chain": "GRCh37.chain"},
            {"chain": "GRCh37.chain", "promoters": None},
        ),
        *({"reference": None, "assembly": "demo"}, {"annotation": "x.gtf"}),
        {**HUMAN, "annotation": "sacCer3.annotation"},
    ],
)
def test_sources_that_do_not_fit(keys: dict[str, str | None]) -> None:
    with fails(ConfigError):
        check_sources(_genome(**keys))


def test_files_instead_of_sources(tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.mkdir()
    for name in ("mine.fa.gz", "mine.sga"):
        (local / name).write_bytes(b"")
    keys: dict[str, str | None] = {"reference": "mine.fa.gz", "promoters": "mine.sga"}
    config = _genome(**keys).model_copy(update={"data_dir": str(local)})
    assert own_files(config) == {
        "reference": local / "mine.fa.gz",
        "promoters": local / "mine.sga",
    }
    assert check_sources(config) == {}
    (local / "genes.gff3").touch()
    annotated = _genome(**keys, annotation="genes.gff3").model_copy(
        update={"data_dir": str(local)}
    )
    assert own_files(annotated)["annotation"] == local / "genes.gff3"
    # A file beside a key, by its path, and promoters that a chain lifts.
    path = str(local / "mine.sga")
    human = _genome(**{**HUMAN, "promoters": path})
    assert set(check_sources(human)) == {"reference", "chain"}
    assert own_files(human) == {"promoters": local / "mine.sga"}
    # Names of contigs that no table knows.
    other = {
        "assembly": "demo",
        "reference": str(local / "mine.fa.gz"),
        "promoters": None,
    }
    assert check_sources(_genome(**other)) == {}
    with fails(ConfigError):
        check_sources(_genome(**{**other, "promoters": "sacCer3.promoters"}))
    for gone in (
        _genome(reference="gone.fa"),
        _genome().model_copy(update={"data_dir": "missing"}),
    ):
        with fails(ConfigError):
            check_sources(
                gone.model_copy(update={"data_dir": gone.data_dir or str(local)})
            )


def test_an_alias_file_is_found_like_a_reference(tmp_path: Path) -> None:
    (tmp_path / "here.fa").touch()
    genome = {
        "assembly": "custom",
        "name": "x",
        "reference": "here.fa",
        "aliases": "sacCer3.promoters",
    }
    values = {
        "data_dir": str(tmp_path),
        "genome": genome,
        "promoters": {"source": None},
    }
    config = parse_config(values)
    with fails(ConfigError):
        check_sources(config)
    (tmp_path / "sacCer3.promoters").write_text(
        "a\tb\n"
    )  # no key, whatever it is called
    assert check_sources(config) == {}
    assert own_files(config)["aliases"] == tmp_path / "sacCer3.promoters"
    assert find_assembly(config).match("a", ["b"]) == "b"
    assert find_assembly(config).name == "x"
    with fails(ConfigError):
        check_sources(parse_config({"genome": {"assembly": "custom", "name": "x"}}))


def test_local_data_comes_before_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, here = tmp_path / "local", tmp_path / "here"
    for directory in (local / "peaks", here / "peaks", here / "only"):
        directory.mkdir(parents=True)
    monkeypatch.chdir(here)
    assert locate("peaks", str(local)) == local / "peaks"
    assert locate("only", str(local)) == Path("only")
    assert locate("peaks", None) == Path("peaks")
    assert locate("nowhere", str(local)) == Path("nowhere")
    assert locate(str(here / "only"), str(local)) == here / "only"
