"""Promoter and chromatin models: their predictions of held-out data, calibration."""
