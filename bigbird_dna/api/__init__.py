"""Data sets for those who train elsewhere."""
