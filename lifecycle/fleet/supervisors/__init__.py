"""Ways to run a replica. One protocol (`base`), one module per process manager."""
