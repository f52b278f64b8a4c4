"""What must be in the environment before torch and transformers are imported."""

from __future__ import annotations

import os


def prepare_environment() -> None:
    """Set the libraries' switches; what an operator has set stays."""
    # Idle OpenMP threads spin by default and take their core from the API process and from
    # everybody else: with two busy neighbours on two cores a step took 2 to 5 times as long
    # as with threads that sleep.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # A model is its directory: nothing may be fetched.
    os.environ["HF_HUB_OFFLINE"] = "1"
