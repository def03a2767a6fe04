"""The reader of configurations."""

from pathlib import Path

from tests.fuzz.reader import Reader

HOME = Path(__file__).resolve().parents[3]


def _read(path: Path) -> object:
    from bigbird_dna.config import complete, load_config, stage_text

    config = complete(load_config(path))
    return stage_text(config, "chromatin"), config.paths.report


def _seeds() -> list[bytes]:
    from bigbird_dna.config import Config, stage_text

    # That of the tasks on text has other sections, which others read.
    paths = sorted({*(HOME / "workflow/config").glob("*.yaml")} - {HOME / "workflow/config/nlp.yaml"})
    shipped = [path.read_bytes() for path in paths]
    return [
        *shipped,
        stage_text(Config(), "chromatin").encode(),
        b"seed: 7\nresults: my run\n",
        b"genome: {valid: [I, 'II'], test: [\"III\"]}\npretraining:\n  mask_fraction: 1.5e-1\n",
        b"chromatin:\n  data:\n    tracks: >-\n      some\n      peaks\n    label: 7\n    blacklist: null\n",
    ]


READERS = [
    Reader(
        name="configuration",
        suffix=".yaml",
        read=_read,
        seeds=_seeds,
        tokens=(
            *(b"&a ", b"*a", b"<<: ", b"!!int ", b"!!timestamp ", b"!!python/name:os.system ", b"? ", b"- "),
            *(b"[[[[", b"0x_", b"1:30", b".nan", b"2024-01-01", b"__use_yte__: true\n", b"results: ", b"{x}"),
        ),
    )
]
