"""Metrics and structured logs of the serving tier."""
