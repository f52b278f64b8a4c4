"""Alembic migrations of the registry database; they ship with the package."""
