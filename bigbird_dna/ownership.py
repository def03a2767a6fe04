"""Whether what stands at a path can have been put there by this user alone.

Code is loaded from nowhere else: whoever may write a library, or put another in its place, runs code as
whoever loads it. The superuser is trusted, as everywhere.
"""

import grp
import os
import pwd
import stat
from pathlib import Path

_LINKS = 40  # symbolic links on the way, as the kernel allows


def distrust(directory: Path) -> str | None:
    """Why others may have put, or may yet put, something into `directory`; None: nobody but this user may.

    The directory must be this user's, and no other may write to it. On the way to it nobody else may be able
    to put something in its place: symbolic links are this user's or root's, and directories that others may
    write to are sticky, as /tmp is.
    """
    if not directory.is_absolute():
        return "is not an absolute path"
    way, parts = Path(directory.anchor), list(directory.parts[1:])
    links = 0
    while parts:
        way = _step(way, parts.pop(0))
        try:
            status = way.lstat()
            if stat.S_ISLNK(status.st_mode):
                links += 1
                if links > _LINKS:
                    return f"lies behind too many symbolic links, {way} the last"
                if status.st_uid not in (0, os.geteuid()):
                    return f"lies behind the symbolic link {way} of another user"
                target = way.readlink()
                parts[:0] = target.parts[1:] if target.is_absolute() else target.parts
                way = Path(target.anchor) if target.is_absolute() else way.parent
            elif parts and others_may_write(status) and not status.st_mode & stat.S_ISVTX:
                return f"lies in {way}, which others may write to"
        except OSError as error:
            return f"can't be looked at: {error.strerror}"
    status = way.stat()
    if not stat.S_ISDIR(status.st_mode):
        return "is not a directory"
    return distrust_file(status)


def distrust_file(status: os.stat_result) -> str | None:
    """The same of one opened file or directory, whatever is around it."""
    if status.st_uid != os.geteuid():
        return f"belongs to {_user(status.st_uid)}"
    if others_may_write(status):
        return "is open to others for writing"
    return None


def others_may_write(status: os.stat_result) -> bool:
    """Whether a user that isn't the owner may write: a group of this user alone is nobody else."""
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_private(status.st_gid)


def _is_private(group: int) -> bool:
    """Whether a group is this user's own, of the same name and without another member, as is usual."""
    try:
        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == user.pw_name and user.pw_gid == group and set(entry.gr_mem) <= {user.pw_name}


def _user(number: int) -> str:
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


def _step(way: Path, part: str) -> Path:
    return way.parent if part == ".." else way / part
