"""A demo genome with known truth: sequence, promoters, tracks and variants, all a function of a seed.

The modules go from small to large: `motifs` (instances and matches), `composition` and `repeats` (what lies
under everything), `promoters` and `regulation` (loci made of motifs), `plan` (their places), `tracks` and
`variants` (labels that follow), `contig` (all of it for one contig), and `writing` (the files). `parameters`
has every number.
"""

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pysam

from bigbird_dna.console import log
from bigbird_dna.directories import into_directory
from bigbird_dna.errors import UsageError
from bigbird_dna.files import write_json
from bigbird_dna.simulate.writing import (
    contig_numbers,
    gzip_writer,
    index_outputs,
    locus_lines,
    peak_lines,
    promoter_lines,
    track_table,
    variant_lines,
    vcf_header,
    write_sequence,
)
from bigbird_dna.simulate.contig import simulate_contig
from bigbird_dna.simulate.motifs import CORE, MOTIFS, weights
from bigbird_dna.simulate.parameters import MEGABASES_RANGE, Parameters, contig_lengths
from bigbird_dna.simulate.promoters import OFFSETS, PRESENCE, jitter
from bigbird_dna.simulate.repeats import families
from bigbird_dna.simulate.tracks import TRACKS

__all__ = ["Parameters", "simulate"]

HELD_OUT = {"valid": ["demo5"], "test": ["demo6"]}


def simulate(out_dir: Path, seed: int, megabases: float, parameters: Parameters | None = None) -> None:
    """Write a demo genome of `megabases` Mb into `out_dir`; equal arguments give equal bytes.

    Files: `genome.fa.gz` (bgzip, soft-masked, with `.fai` and `.gzi`), `promoters.sga`,
    `peaks/{track}.narrowPeak.gz`, `tracks.tsv`, `variants.vcf.gz` (bgzip, with `.tbi`; the true
    effect in INFO), `loci.bed.gz` (everything planted, decoys included) and `truth.json`. They are
    written aside and moved into place once all are complete; other files in `out_dir` stay.

    Raises `UsageError` for a size outside `MEGABASES_RANGE`, a negative seed, or an `out_dir` that
    can't be made or has other files of these names.
    """
    low, high = MEGABASES_RANGE
    if not low <= megabases <= high:
        raise UsageError(f"megabases {megabases:g} is outside {low:g} to {high:g}")
    if seed < 0:
        raise UsageError(f"seed {seed} is negative")
    parameters = parameters or Parameters()
    with into_directory(out_dir) as files:
        _write_all(files, seed, contig_lengths(megabases, parameters), parameters)


def _write_all(directory: Path, seed: int, lengths: dict[str, int], parameters: Parameters) -> None:
    """Simulate contig by contig, so that memory is that of the longest."""
    (directory / "peaks").mkdir()
    family_seed, *contig_seeds = np.random.SeedSequence(seed).spawn(1 + len(lengths))
    consensus = families(parameters, np.random.default_rng(family_seed))
    numbers: dict[str, Any] = {}
    fasta, vcf = directory / "genome.fa.gz", directory / "variants.vcf.gz"
    with ExitStack() as stack:
        genome = stack.enter_context(pysam.BGZFile(str(fasta), "wb", None))
        variants = stack.enter_context(pysam.BGZFile(str(vcf), "wb", None))
        sga = stack.enter_context((directory / "promoters.sga").open("w"))
        loci = stack.enter_context(gzip_writer(directory / "loci.bed.gz"))
        peaks = {
            track: stack.enter_context(gzip_writer(directory / "peaks" / f"{track}.narrowPeak.gz"))
            for track in TRACKS
        }
        variants.write(vcf_header(lengths).encode())
        for (name, length), contig_seed in zip(lengths.items(), contig_seeds, strict=True):
            contig = simulate_contig(name, length, consensus, parameters, contig_seed)
            write_sequence(genome, contig)
            sga.writelines(promoter_lines(contig))
            loci.write("".join(locus_lines(contig)).encode())
            variants.write("".join(variant_lines(contig)).encode())
            for track, stream in peaks.items():
                stream.write("".join(peak_lines(contig, track)).encode())
            numbers[name] = contig_numbers(contig)
            log(f"{name}: {length:,} bp simulated")
    index_outputs(fasta, vcf)
    (directory / "tracks.tsv").write_text(track_table())
    write_json(directory / "truth.json", _truth(seed, parameters, numbers))


def _truth(seed: int, parameters: Parameters, numbers: dict[str, Any]) -> dict[str, Any]:
    """What the genome was made from."""
    spread = jitter(parameters)
    return {
        "seed": seed,
        "parameters": asdict(parameters),
        "suggested_splits": HELD_OUT,
        "motifs": {
            motif.name: {
                "consensus": motif.consensus,
                "description": motif.description,
                "pwm": np.round(weights(motif, parameters), 4).tolist(),
            }
            for motif in MOTIFS
        },
        "grammar": {
            "start_relative_to_tss": {
                motif.name: [int(offset - wobble), int(offset + wobble)]
                for motif, offset, wobble in zip(CORE, OFFSETS, spread, strict=True)
            },
            "presence": {
                kind: dict(zip((motif.name for motif in CORE), presence, strict=True))
                for kind, presence in PRESENCE.items()
            },
        },
        "tracks": {
            track: {"group": group, "description": description}
            for track, (group, description) in TRACKS.items()
        },
        "contigs": numbers,
    }
