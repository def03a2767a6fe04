"""Every number that shapes the demo genome and decides how hard its tasks are."""

from dataclasses import dataclass

MEGABASES_RANGE = (0.1, 1000.0)  # that the simulation is made for


@dataclass(frozen=True)
class Parameters:
    """Sizes, densities and difficulty of the simulation; lengths in bp, densities in bp a locus.

    The defaults make a genome whose promoters (400 bp) a 5-mer logistic regression tells from GC-matched
    windows with an AUROC of about 0.73, while the true grammar reaches nearly 1.
    """

    # Contigs demo1…demo6 as fractions of the genome. The last two are meant to be held out: demo5 (11 %) for
    # validation and demo6 (14 %) for the test.
    contig_fractions: tuple[float, ...] = (0.26, 0.20, 0.16, 0.13, 0.11, 0.14)

    # Composition
    gc_levels: tuple[float, float] = (0.36, 0.54)
    gc_steps: int = 10
    isochore_length: tuple[int, int] = (15_000, 90_000)
    cpg_odds: float = 0.2
    """of G after C; observed over expected comes out at 1 to 1.4 times that"""
    island_gc: float = 0.60
    island_cpg_odds: float = 0.85
    island_length: tuple[int, int] = (400, 900)
    orphan_island_every: int = 7_000
    gap_every: int = 400_000
    gap_length: tuple[int, int] = (100, 2_000)

    # Repeats
    repeat_families: int = 8
    repeat_length: tuple[int, int] = (300, 1_500)
    repeat_divergence: tuple[float, float] = (0.05, 0.25)
    repeat_indels: float = 0.1
    """indels a substitution"""
    repeat_fraction: float = 0.22
    """of the genome, before later copies, islands and motifs are laid over earlier ones"""

    # Promoters and decoys
    promoter_every: int = 900
    decoys_per_promoter: float = 4.0
    tata_fraction: float = 0.5
    """of promoters and decoys; the others are of the DPE class"""
    core_fidelity: float = 0.95
    """chance that a position of a core promoter element carries its consensus"""
    spacing_jitter: float = 1.0
    """scales the jitter of the elements' positions around their place in the grammar"""
    decoy_mix: tuple[float, float, float] = (0.35, 0.35, 0.30)
    """decoys in the wrong order, at the wrong distance, on the wrong strand"""
    decoy_shift: tuple[int, int] = (10, 30)
    """change of every spacing in a decoy of the wrong distance"""
    promoter_factor_fraction: float = 0.3
    """promoters with a factor's site upstream of the core"""
    island_fraction: float = 0.35
    """DPE-class promoters inside a CpG island"""

    # Factors' sites and distal elements
    site_every: int = 7_000
    """lone sites of one factor"""
    site_intact: float = 0.5
    """lone sites without a mismatch at a strong position"""
    weak_fidelity: float = 0.7
    enhancer_every: int = 4_000
    enhancer_sites: int = 5
    activator_every: int = 8_000
    silencer_every: int = 14_000
    distal_copies: int = 10
    """sites in an activator or silencer"""
    distal_range: tuple[int, int] = (1_500, 3_500)
    """distance at which activators and silencers act, either side"""

    # Variants
    variants_per_megabase: int = 160
    indel_fraction: float = 0.25
    isolation: int = 400
    """a variant's site has no other site of its factor within this distance"""


def contig_lengths(megabases: float, parameters: Parameters) -> dict[str, int]:
    """Contig names and lengths; they sum to `megabases`, and no length is round."""
    total = round(megabases * 1e6)
    return {
        f"demo{number}": round(fraction * total) + 137 * (number % 2 * 2 - 1)
        for number, fraction in enumerate(parameters.contig_fractions, start=1)
    }
