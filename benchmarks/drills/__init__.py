"""Faults on purpose: each drill breaks a running product and reports what its users saw."""
