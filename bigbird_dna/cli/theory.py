"""The command that shows what an encoder's layers reach."""

from pathlib import Path
from typing import Annotated

from bigbird_dna.cli.options import ResultFile, argument, option
from bigbird_dna.disk.outputs import check_output, named_output, open_text, text_destination


def show_reach(
    source: Annotated[
        Path, argument("Configuration (YAML) or model directory whose encoder it is.", "CONFIG|MODEL_DIR")
    ],
    output: ResultFile = None,
    tokens: Annotated[
        int | None, option("N", "Length of the input.", "the encoder's longest, at most 1024", least=1)
    ] = None,
    layers: Annotated[int | None, option("N", "At most so many.", "the encoder's", least=1)] = None,
) -> None:
    """Show how many layers it takes until every token can know of every other.

    A table of layers and the share of pairs of tokens that they reach, up to the layer that reaches all. Of a
    mechanism in which vectors decide who sees whom it is that of random ones.
    """
    from bigbird_dna.config import load_config
    from bigbird_dna.model.directory import read_encoder_config
    from bigbird_dna.tasks.theory.reach import MOST_TOKENS, encoder_reach

    destination = named_output(output)
    check_output(destination, [source])
    encoder = read_encoder_config(source) if source.is_dir() else load_config(source).encoder
    length = tokens or min(encoder.positions, MOST_TOKENS)
    with text_destination(destination) as target, open_text(target) as stream:
        stream.write("#layers\treached\tall\n")
        for one in encoder_reach(encoder, length, layers):
            stream.write(f"{one.layers}\t{one.share:.6g}\t{'yes' if one.complete else 'no'}\n")
