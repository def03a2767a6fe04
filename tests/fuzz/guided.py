"""Damaged files that atheris chooses by the code that they reach; run in a process that may die.

    python -m tests.fuzz.guided READER DIRECTORY SEED

Files that reached something new are kept in DIRECTORY/found. Each line that goes out is answered by one, so
that the input stays where it is until then.
"""

import faulthandler
import json
import sys
import time
import warnings
from pathlib import Path

from tests.fuzz.mutation import LARGEST, Mutator

_INSTRUMENTED = ["bigbird_dna", "scipy.io.matlab", "yaml", "pyfaidx"]


def main() -> None:
    """Read damaged files until the process is ended."""
    import atheris

    from tests.fuzz.child import fresh, own_streams, read

    requests, answers = own_streams()
    name, home, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    faulthandler.enable()
    warnings.simplefilter("ignore")
    with atheris.instrument_imports(include=_INSTRUMENTED):
        from tests.fuzz.readers import READERS
    from tests.fuzz.hunting import corpus

    reader = READERS[name]
    starts = [*reader.seeds(), *corpus(reader)]
    for data in starts:
        read(reader, fresh(home, reader, data), None)
    mutator = Mutator(reader, starts, seed)
    found = home / "found"
    found.mkdir(exist_ok=True)
    for number, data in enumerate(starts):
        (found / f"start-{number}").write_bytes(data)

    def try_one(data: bytes) -> None:
        began = time.process_time()
        path = fresh(home, reader, data)
        print("{}", file=answers, flush=True)
        requests.readline()
        answer = read(reader, path, None)
        answer["cpu"] = time.process_time() - began
        print(json.dumps(answer), file=answers, flush=True)
        requests.readline()

    def damage(data: bytes, size: int, number: int) -> bytes:
        return mutator.damaged(data)[:size] if number % 4 else atheris.Mutate(data, size)

    limits = ["-rss_limit_mb=0", "-malloc_limit_mb=0", "-timeout=100000", "-len_control=0", "-detect_leaks=0"]
    own = [
        f"-handle_{kind}=0"
        for kind in ("abrt", "bus", "fpe", "ill", "segv", "int", "term", "xfsz", "usr1", "usr2")
    ]
    options = [f"-max_len={LARGEST}", f"-seed={seed + 1}", "-verbosity=0", *limits, *own]
    atheris.Setup([sys.argv[0], str(found), *options], try_one, custom_mutator=damage)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
