"""The experiments of the papers: models trained with one thing changed, compared on the same test data."""
