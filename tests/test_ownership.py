"""Who could have put a file where it is."""

import grp
import os
import pwd
from pathlib import Path

import pytest

from bigbird_dna.disk.user_cache import distrust


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
    ways = (
        place,
        tmp_path / "link" / "place",
        tmp_path / "absolute",
        tmp_path / "way" / ".." / "link" / "place",
    )
    assert [distrust(way) for way in ways] == [None] * 4


@pytest.mark.parametrize("mode", [0o757, 0o777, 0o1777])
def test_a_directory_that_others_may_write_to_is_not(place: Path, mode: int) -> None:
    place.chmod(mode)
    assert distrust(place) == "is open to others for writing"


def test_the_way_may_be_open_to_others_only_where_it_is_sticky(place: Path) -> None:
    place.parent.chmod(0o777)
    assert distrust(place) == f"lies in {place.parent}, which others may write to"
    place.parent.chmod(0o1777)
    assert distrust(place) is None


def test_another_user_s_is_not_trusted(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert distrust(place) == f"belongs to user {owner}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give links away")
def test_another_user_s_link_is_not_followed(place: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(place)
    os.chown(link, 54321, 54321, follow_symlinks=False)
    assert distrust(link) == f"lies behind the symbolic link {link} of another user"


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
    assert distrust(place) == "is open to others for writing"
    members[:], name = [], "staff"
    assert distrust(place) == "is open to others for writing"


def test_no_directory_is_no_place(place: Path, tmp_path: Path) -> None:
    (place / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    assert distrust(place / "file") == "is not a directory"
    assert distrust(place / "none") == "can't be looked at: No such file or directory"
    assert distrust(place / "file" / "below") == "can't be looked at: Not a directory"
    assert distrust(Path("way")) == "is not an absolute path"
    assert distrust(tmp_path / "loop") == f"lies behind too many symbolic links, {tmp_path / 'loop'} the last"
