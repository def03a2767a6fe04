"""Who could have put a file where it is."""

import grp
import os
import pwd
from pathlib import Path

import pytest

from bigbird_dna.disk.user_cache import distrust
from tests.golden.messages import message


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "way" / "place"
    path.mkdir(parents=True)
    path.chmod(0o755)
    path.parent.chmod(0o755)
    return path


def test_an_own_directory_is_trusted_however_it_is_reached(place: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("way")
    (tmp_path / "absolute").symlink_to(place)
    ways = ("way/place", "link/place", "absolute", "way/../link/place")
    assert [distrust(tmp_path / way) for way in ways] == [None] * 4


@pytest.mark.parametrize("mode", [0o757, 0o777, 0o1777])
def test_what_others_may_write_to_is_not(place: Path, mode: int) -> None:
    """The way to a directory may be, where it is sticky."""
    place.chmod(mode)
    message(distrust(place) or "")
    place.chmod(0o755)
    place.parent.chmod(mode)
    if mode == 0o1777:
        assert distrust(place) is None
    else:
        message(distrust(place) or "", place.parent)


def test_another_user_s_is_not_trusted(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    message(distrust(place) or "", owner)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give links away")
def test_another_user_s_link_is_not_followed(place: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(place)
    os.chown(link, 54321, 54321, follow_symlinks=False)
    message(distrust(link) or "", link)


def test_a_group_of_oneself_is_nobody_else(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.chmod(0o775)
    user = pwd.getpwuid(os.geteuid())
    number = place.stat().st_gid
    members: list[str] = []
    monkeypatch.setattr(pwd, "getpwuid", lambda _: type(user)([*user[:3], number, *user[4:]]))
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group((name, "x", gid, members)))
    name = user.pw_name
    assert distrust(place) is None
    members.append("somebody")
    assert distrust(place)
    members[:], name = [], "staff"
    assert distrust(place)


def test_no_directory_is_no_place(place: Path, tmp_path: Path) -> None:
    (place / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for path in (place / "file", place / "none", place / "file/below", Path("way"), tmp_path / "loop"):
        message(distrust(path) or "")
