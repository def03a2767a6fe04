"""Locks on open files. The system releases a lock when its process ends for any reason.

On a shared disk, the lock of a machine that failed remains until the server gives it up: after about 90
seconds with NFS 4, otherwise possibly never. Therefore no lock is waited for without limit.
"""

import fcntl
import time
from pathlib import Path

from bigbird_dna.console import log

PAUSE = 0.2  # seconds between attempts
NOTICE = 5.0  # seconds until a wait is logged


def lock_file(handle: int, path: Path, consequence: str = "", seconds: float = 0.0) -> bool:
    """Lock the open file `path` until it is closed; return whether this succeeds within `seconds`.

    Where locks are not supported, no process is excluded and the result is True. A warning states the
    `consequence`, if there is one.
    """
    began = time.monotonic()
    logged = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - began
            if waited >= seconds:
                return False
            if waited >= NOTICE and not logged:
                log(f"waiting up to {seconds:.0f} s for another process that has locked {path}")
                logged = True
            time.sleep(PAUSE)
            continue
        except OSError as error:
            if consequence:
                log(f"warning: {path}: cannot be locked ({error.strerror}): {consequence}")
        return True
