"""What `make up`, `make down` and `make status` do: Dagster, one replica, the demo model."""
