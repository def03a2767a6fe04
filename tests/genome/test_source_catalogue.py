"""The list of sources: what is no possible value of a field is refused with the entry's name."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigbird_dna.errors import ConfigError
from bigbird_dna.genome.sources.catalogue import load_sources, read_sources
from tests.golden.messages import fails

ENTRY: dict[str, Any] = {
    "file": "a.gz",
    "assembly": "demo",
    "from": "other",
    "urls": ["https://a/a.gz"],
    "checksum": "md5:" + "0" * 32,
    "megabytes": 1,
    "licence": "free",
    "citation": "us",
}


def test_an_entry_is_read(tmp_path: Path) -> None:
    (tmp_path / "sources.yaml").write_text(yaml.safe_dump({"a.b": ENTRY}))
    source = read_sources(tmp_path / "sources.yaml")["a.b"]
    assert (source.key, source.file, source.from_assembly) == ("a.b", "a.gz", "other")
    assert (source.urls, source.size) == (("https://a/a.gz",), 1_000_000)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("file", "../a", "file: '../a' is not a name of a file"),
        ("file", ".a", "file: '.a' is not a name of a file"),
        ("file", "", "file: no text of one line"),
        ("licence", "a\nb", "licence: no text of one line"),
        ("citation", 7, "citation: no text of one line"),
        ("from", ["x"], "from: no text of one line"),
        ("urls", [], "urls: no list of addresses"),
        ("urls", "https://a", "urls: no list of addresses"),
        ("urls", [7], "urls: 7 is not an address"),
        ("urls", ["https://ä/b"], "is not an address of the web or FTP, in ASCII without spaces"),
        ("urls", ["https://a/b c"], "is not an address of the web or FTP, in ASCII without spaces"),
        ("urls", ["https://a/\r\nHost: b"], "is not an address of the web or FTP, in ASCII without spaces"),
        ("urls", ["file:///etc/passwd"], "is not an address of the web or FTP"),
        ("urls", ["https://"], "is not an address of the web or FTP"),
        ("urls", ["https://["], "is not an address of the web or FTP"),
        ("urls", ["https://a:99999/"], "is not an address of the web or FTP"),
        ("checksum", "md5:1", "checksum: 'md5:1' is not md5 or sha1 or"),
        ("checksum", "crc:00", "checksum: 'crc:00' is not md5 or"),
        ("checksum", 7, "checksum: 7 is not md5 or"),
        ("megabytes", 0, "megabytes: 0 is not a number above 0"),
        ("megabytes", "1", "megabytes: '1' is not a number above 0"),
        ("megabytes", True, "megabytes: True is not a number above 0"),
        ("megabytes", float("nan"), "megabytes: nan is not a number above 0"),
        ("megabytes", 10**400, "megabytes: <a whole number of 1329 bits> is not a number above 0"),
        ("sha", "x", "unknown field 'sha'"),
        ("urls", None, "no field 'urls'"),
    ],
)
def test_values_that_cannot_be(tmp_path: Path, field: str, value: object, message: str) -> None:
    entry = copy.deepcopy(ENTRY)
    entry[field] = value
    if message.startswith("no field"):
        del entry[field]
    path = tmp_path / "sources.yaml"
    path.write_text(yaml.safe_dump({"a.b": entry}, width=10_000))
    with pytest.raises(ConfigError) as caught:
        read_sources(path)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a: [", "not YAML"),
        (b"\xff\xfe", "not a text file"),
        (b"- a", "is not a mapping of keys to sources"),
        (b"a: 7", "source 'a': is not a mapping of fields"),
        (b"a: {}\na: {}", "is given twice"),
        (b"#" * 300_000, "a list of sources has at most 262,144 bytes"),
        (b"a: !!python/name:os.system x", "is not data"),
    ],
)
def test_files_that_are_no_list_of_sources(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "sources.yaml"
    path.write_bytes(text)
    with pytest.raises(ConfigError) as caught:
        read_sources(path)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)


def test_a_missing_list(tmp_path: Path) -> None:
    with fails(ConfigError):
        read_sources(tmp_path / "sources.yaml")


def test_no_two_sources_have_one_file_name() -> None:
    files = [source.file for source in load_sources().values()]
    assert len(set(files)) == len(files)
