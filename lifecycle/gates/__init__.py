"""Promotion gates: one file each, no Dagster; the asset checks run them and record the outcome."""
