"""Checks of a machine, one file per group: small functions from an inspection to an outcome."""
