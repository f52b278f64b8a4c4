"""Data plane: HTTP API, engine processes and the models they hold."""
