"""Keys of earlier configurations, and where they are now."""

from collections.abc import Mapping

_TRAINING = "steps batch_size accumulate optimizer precision evaluate_every checkpoint_every seed"
_PLACES: Mapping[str, str] = {
    "promoters.windows": "upstream downstream negative_sets negatives distance",
    "promoters.model": "initial extend_positions pooling dropout views",
    "promoters.training": f"jitter {_TRAINING}",
    "promoters.evaluation": "baseline_kmer",
    "chromatin.data": "tracks track_names group bin window compare_window shift label widen "
    "negative_fraction minimum_positives minimum_held_out blacklist max_n valid_regions test_regions",
    "chromatin.model": "initial extend_positions pooling bin_layers dropout",
    "chromatin.training": f"positive_weight neighbours evaluation_bins {_TRAINING}",
    "chromatin.evaluation": "test_bins middle baseline_kmer",
}
# Old dotted key → new dotted key.
MOVED: Mapping[str, str] = {
    "genome.promoters": "promoters.source",
    "genome.chain": "promoters.chain",
    **{
        f"{place.split('.')[0]}.{key}": f"{place}.{key}"
        for place, keys in _PLACES.items()
        for key in keys.split()
    },
}


def moved_to(key: str) -> str | None:
    """The new place of a dotted key, itself or with the section that holds it; none: it hasn't moved."""
    parts = key.split(".", 2)
    place = MOVED.get(".".join(parts[:2]))
    return place and ".".join([place, *parts[2:]])
