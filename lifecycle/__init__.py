"""Control plane: Dagster assets, jobs and sensors that move a model towards service."""
