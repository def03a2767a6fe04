"""Long-Range Arena's generated tasks (Tay et al. 2021): data, and classifiers with any attention."""
