"""Which models this replica holds: load, swap, unload, restart."""
