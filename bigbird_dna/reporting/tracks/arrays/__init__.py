"""Arrays of rows × tracks in files of several kinds, read a few rows at a time."""
